"""Server-sent events: one writer and one reader (WHATWG HTML, section "Server-sent events").

The reader is a state machine over bytes: any way of cutting a stream gives the same events. Lines
end in LF, CRLF or CR; a comment keeps a connection alive and is not an event; an event that is
incomplete at the end of a stream is dropped, as the standard requires. This module knows neither
HTTP nor what events mean.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DONE = b"data: [DONE]\n\n"
DONE_DATA = "[DONE]"
KEEP_ALIVE = b": keep-alive\n\n"

# An event larger than this is an attack or a fault, not a chunk of a completion.
MAX_EVENT_BYTES = 64 * 2**20

_BOM = b"\xef\xbb\xbf"
# Longer numbers are no time, and int() refuses those of thousands of digits.
_MILLISECONDS = re.compile(r"[0-9]{1,18}")

# NEL, LS and PS end no line of a stream, but they do for clients that cut text with
# str.splitlines (httpx's iter_lines); as JSON escapes they are harmless to everybody.
_ESCAPED = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


class Event(NamedTuple):
    """One event. `data` has its lines joined by LF; `event` is its type, "message" if unnamed."""

    data: str
    event: str = "message"
    id: str = ""
    retry_ms: int | None = None


class StreamTooLargeError(ValueError):
    """An event exceeds the reader's limit."""


def data_event(json: bytes) -> bytes:
    """The event that carries one line of JSON; `json` must hold no raw line ends."""
    return b"data: " + one_line(json) + b"\n\n"


def one_line(json: bytes) -> bytes:
    """The same JSON without what some clients take for a line end."""
    if not json.isascii():
        for raw, escaped in _ESCAPED:
            json = json.replace(raw, escaped)
    return json


def write_event(data: str, *, event: str | None = None, id: str | None = None) -> bytes:
    """Any event. CR, LF and CRLF in `data` all come out of a reader as LF.

    Raises ValueError for an `event` or `id` with a line end in it.
    """
    lines = []
    for name, value in (("event", event), ("id", id)):
        if value is None:
            continue
        if "\n" in value or "\r" in value or "\0" in value:
            raise ValueError(f"{name} of a server-sent event cannot hold {value!r}")
        lines.append(f"{name}: {value}")
    unified = data.replace("\r\n", "\n").replace("\r", "\n")
    lines += [f"data: {line}" for line in unified.split("\n")]
    return ("\n".join(lines) + "\n\n").encode()


class SSEReader:
    """A splitter of a byte stream: `feed` returns the events that are complete."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        self._data: list[str] = []
        self._event = ""
        self._id = ""
        self._retry_ms: int | None = None
        self._event_bytes = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`, in order; raises StreamTooLargeError for an endless one."""
        events: list[Event] = []
        start = 0
        if self._after_cr and piece:
            self._after_cr = False
            if piece[0] == 0x0A:
                start = 1
        while True:
            end = _line_end(piece, start)
            if end < 0:
                break
            self._line += piece[start:end]
            start = end + 1
            if piece[end] == 0x0D:
                if start == len(piece):
                    self._after_cr = True
                elif piece[start] == 0x0A:
                    start += 1
            self._take_line(events)
        self._line += piece[start:]
        self._limit(len(self._line))
        return events

    def _take_line(self, events: list[Event]) -> None:
        raw = bytes(self._line)
        self._line.clear()
        if self._at_start:
            self._at_start = False
            raw = raw.removeprefix(_BOM)
        if not raw:
            self._dispatch(events)
            return
        if raw.startswith(b":"):
            return
        self._limit(len(raw))
        self._event_bytes += len(raw)
        if raw.startswith(b"data:"):
            self._data.append(raw[5:].decode("utf-8", errors="replace").removeprefix(" "))
            return
        name, _, value = raw.decode("utf-8", errors="replace").partition(":")
        self._take_field(name, value.removeprefix(" "))

    def _take_field(self, name: str, value: str) -> None:
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id":
            if "\0" not in value:
                self._id = value
        elif name == "retry" and _MILLISECONDS.fullmatch(value):
            self._retry_ms = int(value)

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            data = "\n".join(self._data)
            events.append(Event(data, self._event or "message", self._id, self._retry_ms))
        self._data = []
        self._event = ""
        self._retry_ms = None
        self._event_bytes = 0

    def _limit(self, more_bytes: int) -> None:
        if self._event_bytes + more_bytes > self._max_event_bytes:
            raise StreamTooLargeError(
                f"a server-sent event exceeds {self._max_event_bytes} bytes; the stream is damaged "
                "or max_event_bytes is too low"
            )


def _line_end(piece: bytes, start: int) -> int:
    """Index of the first CR or LF at or after `start`, -1 without one."""
    lf = piece.find(b"\n", start)
    cr = piece.find(b"\r", start, lf if lf >= 0 else len(piece))
    return cr if cr >= 0 else lf
