"""What the readers of all syntaxes share: the text, the deltas and the request's tools.

A call is held until its name and the start of its arguments are known. Should the text turn out not
to be a call before that, NotACallError returns all of it to the content. Once a call has started it
cannot be withdrawn: where it breaks, it ends with a fault, and the text from there on is content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.answer_formats.answer_writer import AnswerWriter
from headrace.answer_formats.text_source import Sink, Step, TextSource

MAX_HELD_CHARS = 32768
"""Of a call whose name has not come; longer text is content."""
MAX_NAME_CHARS = 256
CUT_OFF = "the answer ends within the call"
MAX_DEPTH = 64
"""Lists and objects of arguments within one another."""

_IN_STRING = re.compile(r'[^"\\]*')
_OUT_OF_STRING = re.compile(r"[\s:,\w.+\-]*")
_LITERAL = re.compile(r"[\w.+\-]*")
_NAME = re.compile(r"[A-Za-z_][\w.\-:/]{0,255}")


class NotACallError(Exception):
    """A text that looked like a call and is content."""


class BrokenArgumentsError(Exception):
    """The arguments of a call break; the text says why."""


def check_depth(depth: int) -> None:
    """Raises BrokenArgumentsError for arguments nested deeper than MAX_DEPTH."""
    if depth == MAX_DEPTH:
        raise BrokenArgumentsError(f"the arguments are nested deeper than {MAX_DEPTH}")


@dataclass(frozen=True, slots=True)
class CallReading:
    """The text that a reader reads, the deltas that it writes, and the tools it may know."""

    source: TextSource
    """The model's text."""
    answer: AnswerWriter
    """The deltas."""
    tools: Mapping[str, Mapping[str, Any]]
    """The JSON schema of the parameters of each of the request's tools."""

    def start(self, name: str, id: str = "", *, known: bool = False) -> None:
        """Start a call, after which it cannot be content any more.

        known: the name has to be that of a tool of the request, as within reasoning.
        """
        self.check_held()
        known = known or self.answer.in_reasoning
        if not _NAME.fullmatch(name) or (known and name not in self.tools):
            raise NotACallError
        self.source.release()
        self.answer.start_call(name, id)

    def check_held(self) -> None:
        """Give up a call whose name does not come."""
        if self.source.held_chars() > MAX_HELD_CHARS:
            raise NotACallError

    def json_value(self, sink: Sink) -> Step[str]:
        """Pass a JSON value to the sink as it is; why it is not one, or "".

        Only strings and brackets are looked at, which is enough to find the end.
        """
        source = self.source
        brackets: list[str] = []
        first = yield from source.peek()
        if first not in ("{", "[", '"'):
            yield from source.run(_LITERAL, sink)
            return "" if first else CUT_OFF
        while True:
            character = yield from source.peek()
            if not character:
                return CUT_OFF
            if character == '"':
                fault = yield from self._json_string(sink)
                if fault:
                    return fault
            elif character in "{[":
                brackets.append("}" if character == "{" else "]")
                sink((yield from source.take(1)))
            elif brackets and character == brackets[-1]:
                brackets.pop()
                sink((yield from source.take(1)))
            else:
                return f"{character!r} is where JSON has something else"
            if not brackets:
                return ""
            yield from source.run(_OUT_OF_STRING, sink)

    def _json_string(self, sink: Sink) -> Step[str]:
        source = self.source
        sink((yield from source.take(1)))
        while True:
            yield from source.run(_IN_STRING, sink)
            character = yield from source.peek()
            if not character:
                return CUT_OFF
            sink((yield from source.take(1 if character == '"' else 2)))
            if character == '"':
                return ""

    def held_json(self, *, limit: int = MAX_HELD_CHARS) -> Step[str]:
        """A JSON value before the call has started, of at most so many characters."""
        pieces: list[str] = []
        length = 0

        def hold(piece: str) -> None:
            nonlocal length
            self.check_held()
            length += len(piece)
            if length > limit:
                raise NotACallError
            pieces.append(piece)

        fault = yield from self.json_value(hold)
        if fault:
            raise NotACallError
        return "".join(pieces)

    def held_string(self, *, limit: int = MAX_HELD_CHARS) -> Step[str]:
        """A JSON string before the call has started, decoded."""
        try:
            value = json.loads((yield from self.held_json(limit=limit)))
        except ValueError:
            raise NotACallError from None
        if not isinstance(value, str):
            raise NotACallError
        return value

    def held_scalar(self) -> Step[str]:
        """A string, decoded, or a number before the call has started."""
        start = yield from self.source.peek()
        if start in ("{", "["):
            raise NotACallError
        return (yield from self.held_string() if start == '"' else self.held_json())

    def json_arguments(self) -> Step[bool]:
        """The arguments of a call that has started, and its end; whether they are whole."""
        fault = yield from self.json_value(self.answer.arguments)
        self.answer.end_call(fault)
        return not fault
