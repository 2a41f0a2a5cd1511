"""Deltas as readers of formats write them.

White space between the parts of an answer belongs to the format, not to the parts: what lies before
a call, after one, around reasoning or before the content that follows it is dropped. White space
within content, and around content that is all there is, stays.
"""

from __future__ import annotations

import json

from headrace.answer_formats.deltas import (
    CallDelta,
    CallEnd,
    CallStart,
    ContentDelta,
    Delta,
    ReasoningDelta,
)

SPACE = " \t\r\n"


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def json_object_fault(text: str) -> str:
    """Why a text is not a JSON object, "" if it is one."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        return "the arguments are nested too deeply"
    except ValueError as error:
        return f"the arguments are not JSON: {error}"
    return "" if isinstance(value, dict) else "the arguments are not a JSON object"


class AnswerWriter:
    """The deltas that are not taken yet, and what decides about white space."""

    def __init__(self) -> None:
        self.in_reasoning = False
        """Whether what was read last is reasoning."""
        self._deltas: list[Delta] = []
        self._space: list[str] = []
        """White space that waits for what follows, as it came: joined once, since joining it with
        every piece would take time by the square of their number."""
        self._after_part = False
        self._thought = False
        self._calls = 0
        self._arguments: list[str] = []

    @property
    def in_part(self) -> bool:
        """Whether text that comes now goes on with its part as it is: no white space waits for it,
        and none of its own is dropped."""
        thinks = self._thought or not self.in_reasoning
        return thinks and not (self._space or self._after_part)

    @property
    def num_calls(self) -> int:
        """How many calls have started."""
        return self._calls

    def take(self) -> list[Delta]:
        """The deltas since the last time."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def content(self, text: str) -> None:
        """Write content; white space at its end waits for what follows."""
        if self._after_part:
            text = text.lstrip(SPACE)
            self._after_part = not text
        if shown := self._shown(text):
            self._deltas.append(ContentDelta(shown))

    def reasoning(self, text: str) -> None:
        """Write reasoning."""
        self.in_reasoning = True
        if not self._thought:
            text = text.lstrip(SPACE)
            self._thought = bool(text)
            self._space = []
        if shown := self._shown(text):
            self._deltas.append(ReasoningDelta(shown))

    def _shown(self, text: str) -> str:
        """What a text makes certain, with the white space that waited for it; its own at its end
        waits."""
        body = text.rstrip(SPACE)
        shown = "".join((*self._space, body)) if body else ""
        if body:
            self._space = []
        if len(body) < len(text):
            self._space.append(text[len(body) :])
        return shown

    def end_reasoning(self) -> None:
        """What follows is not reasoning."""
        self.end_part()
        self._thought = False
        self.in_reasoning = False

    def start_call(self, name: str, id: str) -> None:
        """Start a call, which ends reasoning."""
        self.end_reasoning()
        self._deltas.append(CallStart(self._calls, name, id))
        self._calls += 1
        self._arguments = []

    def arguments(self, text: str) -> None:
        """Write a piece of the arguments of the call that was started last."""
        if text:
            self._arguments.append(text)
            self._deltas.append(CallDelta(self._calls - 1, text))

    def end_call(self, fault: str = "") -> None:
        """End that call; arguments without a fault that the reader saw are checked here."""
        if not fault:
            fault = json_object_fault("".join(self._arguments))
        self._deltas.append(CallEnd(self._calls - 1, fault))
        self._arguments = []

    def end(self) -> None:
        """Write the white space that content ended with."""
        if self._space:
            self._deltas.append(ContentDelta("".join(self._space)))
        self._space = []

    def end_part(self) -> None:
        """Drop the white space around what does not belong to the content."""
        self._space, self._after_part = [], True
