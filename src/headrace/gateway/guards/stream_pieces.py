"""A stream in a client's dialect as pieces: events with the texts that are in them.

A channel is a text that grows from event to event: the content of a choice, a tool call's
arguments. Texts that are told once more as a whole (Responses' `done` events) are channels of their
own, which begin and end in one event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from headrace.gateway.guards.asked_tools import called_tools
from headrace.gateway.guards.logprobs import logprobs
from headrace.gateway.guards.text_span import (
    Kind,
    TextSpan,
    kind_of,
    readable,
    texts_of,
)
from headrace.protocol.json_spans import NAME, Path, replaced
from headrace.protocol.once import once
from headrace.protocol.sse import DONE_DATA, one_line

Channel: TypeAlias = tuple[str | int, ...]
"""Begins with the number of the choice."""

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
# Of the longest end, all but its last byte.
_BEFORE_END = 3
_LINE = re.compile(rb"\r\n|\n|\r")
_DATA = b"data:"


@dataclass(slots=True)
class Growth:
    """A piece of a channel's text."""

    channel: Channel
    until: Channel
    """What ends the channel."""
    path: Path
    kind: Kind
    text: str
    whole: bool = False
    """Whether this piece is the whole channel."""


@dataclass(slots=True)
class Piece:
    """One event of a stream with its texts."""

    raw: bytes
    """The event with its terminator."""
    growths: list[Growth] = field(default_factory=list)
    ends: tuple[Channel, ...] = ()
    """What is complete after it, as growths name it in `until`."""
    tools: tuple[str, ...] = ()
    changed: set[Path] = field(default_factory=lambda: set[Path]())
    """Paths whose texts have changed."""
    hidden: tuple[Path, ...] = ()
    """Paths of log probabilities, which repeat the text and are not sent on."""


Read: TypeAlias = Callable[[Any], tuple[list[Growth], tuple[Channel, ...]]]


class Pieces:
    """A parser of stream bytes into events with texts: feed it bytes, and it returns the events
    they complete. hides_logprobs: whether log probabilities are removed."""

    def __init__(self, dialect: str, *, hides_logprobs: bool = False) -> None:
        self._hides_logprobs = hides_logprobs
        self._read: Read = _READERS.get(dialect, _chat)
        self._lines = dialect in ("ollama", "ollama-generate")
        # An event that has not come whole, and its last bytes, with which its end may begin.
        self._held: list[bytes] = []
        self._tail = b""

    def feed(self, data: bytes) -> list[Piece]:
        """Whole events."""
        end = _LINE if self._lines else _END
        new = self._tail + data
        self._held.append(data)
        self._tail = new[-_BEFORE_END:]
        if end.search(new) is None:
            return []
        data = b"".join(self._held)
        pieces: list[Piece] = []
        at = 0
        for found in end.finditer(data):
            pieces += self._made(data[at : found.end()])
            at = found.end()
        self._held = [data[at:]]
        self._tail = data[at:][-_BEFORE_END:]
        return pieces

    def end(self) -> list[Piece]:
        """A last event that nothing ends, if it is whole."""
        left, self._held, self._tail = b"".join(self._held), [], b""
        return self._made(left) if left else []

    def _made(self, raw: bytes) -> list[Piece]:
        """No pieces for what cannot be parsed, such as an event that was cut: it may contain
        anything."""
        text = raw if self._lines else _data_of(raw)
        if text.strip() in (b"", DONE_DATA.encode()):
            return [Piece(raw)]
        try:
            value = json.loads(text, object_pairs_hook=once)
            if not isinstance(value, dict):
                return []
            growths, ends = self._read(value)
            tools = tuple(called_tools(value))
            hidden = tuple(logprobs(value)) if self._hides_logprobs else ()
        except (ValueError, RecursionError):
            return []
        return [Piece(raw, growths, ends, tools, hidden=hidden)]

    def written(self, piece: Piece) -> bytes:
        """The event as it came, except for changed texts and their repetitions."""
        if not piece.changed and not piece.hidden:
            return piece.raw
        values = {
            growth.path: msgspec.json.encode(growth.text)
            for growth in piece.growths
            if growth.path in piece.changed
        }
        values |= dict.fromkeys(piece.hidden, b"null")
        if self._lines:
            return replaced(piece.raw, values)
        data = _data_of(piece.raw)
        # The tokens of a text tell it once more.
        values |= dict.fromkeys(logprobs(json.loads(data)), b"null")
        head = b"".join(
            line + b"\n" for line in _LINE.split(piece.raw) if line and not line.startswith(_DATA)
        )
        told = b"".join(
            b"data: " + one_line(line) + b"\n" for line in _LINE.split(replaced(data, values))
        )
        return head + told + b"\n"


def _data_of(raw: bytes) -> bytes:
    lines = [line for line in _LINE.split(raw) if line.startswith(_DATA)]
    return b"\n".join(line[len(_DATA) :].removeprefix(b" ") for line in lines)


def _channel(choice: int, value: Any, path: Path) -> Channel:
    """A path within `value` with the numbers that parts have in place of where they stand."""
    found: list[str | int] = [choice]
    for step in path:
        if step == NAME:
            return (*found, NAME)
        value = value[step]
        if isinstance(step, int) and isinstance(value, dict):
            step = value.get("index", step)
        found.append(step if isinstance(step, str | int) else 0)
    return tuple(found)


def _growth(choice: int, value: Any, one: TextSpan, before: Path) -> Growth:
    channel = _channel(choice, value, one.path)
    return Growth(channel, (choice,), (*before, *one.path), one.kind, one.text)


def _chat(event: Mapping[str, Any]) -> tuple[list[Growth], tuple[Channel, ...]]:
    growths: list[Growth] = []
    ends: list[Channel] = []
    choices = event.get("choices")
    for at, choice in enumerate(choices if isinstance(choices, list) else ()):
        if not isinstance(choice, dict):
            continue
        index = choice.get("index", at)
        number = index if isinstance(index, int) else at
        for one in texts_of(choice, (), "assistant"):
            growths.append(_growth(number, choice, one, ("choices", at)))
        if choice.get("finish_reason") is not None:
            ends.append((number,))
    return growths, tuple(ends)


def _anthropic(event: Mapping[str, Any]) -> tuple[list[Growth], tuple[Channel, ...]]:
    typed, index = event.get("type"), event.get("index")
    number = index if isinstance(index, int) else 0
    if typed == "content_block_stop":
        return [], ((0, number),)
    name = {"content_block_start": "content_block", "content_block_delta": "delta"}.get(str(typed))
    if name is None or not isinstance(event.get(name), dict):
        return [], ()
    growths = []
    for one in texts_of(event[name], (), "assistant"):
        channel: Channel = (0, number, *one.path)
        growths.append(Growth(channel, (0, number), (name, *one.path), one.kind, one.text))
    return growths, ()


def _responses(event: Mapping[str, Any]) -> tuple[list[Growth], tuple[Channel, ...]]:
    typed = str(event.get("type", ""))
    base, _, last = typed.rpartition(".")
    places = tuple(
        value if isinstance(value := event.get(name), int) else -1
        for name in ("output_index", "content_index", "summary_index")
    )
    channel: Channel = (0, base, *places)
    if last == "delta":
        delta = event.get("delta")
        if not isinstance(delta, str) or not delta or base == "response.audio":
            return [], ()
        return [Growth(channel, channel, ("delta",), _kind_of_event(base), readable(delta))], ()
    growths = []
    for name in ("text", "arguments", "refusal", "input", "transcript", "part", "item", "response"):
        value = event.get(name)
        path: Path = (name,)
        if name == "response":
            value, path = (value or {}).get("output"), (name, "output")
        kind = kind_of(name, _kind_of_event(base))
        for one in texts_of(value, path, "assistant", kind):
            whole: Channel = (0, *one.path)
            growths.append(Growth(whole, whole, one.path, one.kind, one.text, whole=True))
    return growths, (channel,) if last == "done" else ()


def _kind_of_event(base: str) -> Kind:
    if "arguments" in base:
        return "arguments"
    if base.endswith("_input"):  # of a tool that takes any text
        return "argument"
    if "reasoning" in base:
        return "thinking"
    return "refusal" if "refusal" in base else "text"


def _ollama(event: Mapping[str, Any]) -> tuple[list[Growth], tuple[Channel, ...]]:
    growths = []
    for name in ("message", "thinking", "response"):
        for one in texts_of(event.get(name), (), "assistant"):
            is_whole = one.kind == "argument"  # Ollama tells a tool call whole
            channel: Channel = (0, name) if is_whole else (0, name, *one.path)
            growths.append(
                Growth(channel, (0,), (name, *one.path), one.kind, one.text, whole=is_whole)
            )
    return growths, ((0,),) if event.get("done") is True else ()


_READERS: Mapping[str, Read] = {
    "openai-chat": _chat,
    "openai-completions": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "ollama": _ollama,
    "ollama-generate": _ollama,
}
