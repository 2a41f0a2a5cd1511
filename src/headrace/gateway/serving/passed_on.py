"""A stream that is passed through in whole events, without events the client did not request.

The gateway requests usage from every provider, since it has to bill; a client that did not request
it gets the stream without that event. Only the ends of events are looked for (a blank line, or the
end of a line where each is an event); the bytes of an event are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from headrace.protocol.sse import MAX_EVENT_BYTES

_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r")
_LINE_ENDS = (b"\n",)
_LINES_TYPE = "application/x-ndjson"
_END = re.compile(rb"\n\n|\n\r\n|\r\r")
# The last event of a chat completion: no choices, and the usage.
_NO_CHOICES = (b'"choices":[]', b'"choices": []')
_USAGE = b'"usage"'


class WholeEvents:
    """A splitter of a stream of bytes into whole events; at most one event is held back.

    `ends` lists what may end an event. `too_long` says that the one held back exceeds `most_bytes`,
    in which case the caller gives up.
    """

    def __init__(
        self, ends: tuple[bytes, ...] = _BLANK_LINES, most_bytes: int = MAX_EVENT_BYTES
    ) -> None:
        self._ends = ends
        self._most_bytes = most_bytes
        self._begun_bytes = max(map(len, ends)) - 1  # the longest incomplete end
        self._held = bytearray()

    @property
    def too_long(self) -> bool:
        """Whether an event is longer than allowed."""
        return len(self._held) > self._most_bytes

    def feed(self, piece: bytes) -> bytes:
        """The events that `piece` completes."""
        held = self._held
        if not held and piece.endswith(self._ends):  # nearly always: nothing is copied
            return piece
        # No event has ended in what was held, so only its last bytes are searched again.
        last = bytes(held[max(0, len(held) - self._begun_bytes) :])
        data = last + piece
        ended = max(at + len(end) if (at := data.rfind(end)) >= 0 else 0 for end in self._ends)
        if not ended:
            held += piece
            return b""
        cut = ended - len(last)
        out = bytes(held) + piece[:cut]
        self._held = bytearray(piece[cut:])
        return out

    def end(self) -> bytes:
        """What is left: an event that was cut off or lacks its end."""
        left = bytes(self._held)
        self._held = bytearray()
        return left


class WithoutUsage(WholeEvents):
    """A filter of whole events: passes them without those that have usage alone."""

    def feed(self, piece: bytes) -> bytes:
        """The events that `piece` completes and that are passed on."""
        out = super().feed(piece)
        # Nearly all pieces have none, and are passed on unchanged.
        if _USAGE in out and any(mark in out for mark in _NO_CHOICES):
            return b"".join(event for event in _events(out) if not _is_usage_alone(event))
        return out


def passing(stream_type: str, *, hides_usage: bool) -> WholeEvents:
    """The event cutter for a stream of this content type."""
    if stream_type == _LINES_TYPE:
        return WholeEvents(_LINE_ENDS)
    return WithoutUsage() if hides_usage else WholeEvents()


def _events(data: bytes) -> Iterator[bytes]:
    """Each event with its end; a rest after the last end is one too."""
    start = 0
    for match in _END.finditer(data):
        yield data[start : match.end()]
        start = match.end()
    yield data[start:]


def _is_usage_alone(event: bytes) -> bool:
    if _USAGE not in event or not any(mark in event for mark in _NO_CHOICES):
        return False
    _, _, data = event.partition(b"data:")
    try:
        value = msgspec.json.decode(data.strip())
    except msgspec.DecodeError:
        return False
    return isinstance(value, dict) and value.get("choices") == [] and bool(value.get("usage"))
