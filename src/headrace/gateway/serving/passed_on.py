"""A stream that is passed on as it is: whole events alone, but for those nobody asked for.

The gateway asks every provider for its usage, since it has to bill; a client that did not gets the
stream without that event. Only what ends events is looked for (a blank line, or the end of a line
where each is an event); the bytes of an event are not touched.
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
# Of a chat completion's last event: no choices, and the usage.
_NO_CHOICES = (b'"choices":[]', b'"choices": []')
_USAGE = b'"usage"'


class WholeEvents:
    """Feed it bytes; it gives the events that they complete. What it holds back is one event.

    ends: what may end an event. too_long: the one held back exceeds `most_bytes`; whoever feeds
    it gives up then.
    """

    def __init__(
        self, ends: tuple[bytes, ...] = _BLANK_LINES, most_bytes: int = MAX_EVENT_BYTES
    ) -> None:
        self._ends = ends
        self._most_bytes = most_bytes
        self._begun_bytes = max(map(len, ends)) - 1  # of an end that is not whole yet, at most
        self._held = bytearray()

    @property
    def too_long(self) -> bool:
        """Whether an event does not come to its end."""
        return len(self._held) > self._most_bytes

    def feed(self, piece: bytes) -> bytes:
        """The events that `piece` completes."""
        held = self._held
        if not held and piece.endswith(self._ends):  # nearly all: nothing is copied
            return piece
        # No event has ended in what was held, so only its last bytes are looked at again.
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
        """What was cut in the middle of an event, or is one whose end is missing."""
        left = bytes(self._held)
        self._held = bytearray()
        return left


class WithoutUsage(WholeEvents):
    """The same without the events of usage alone."""

    def feed(self, piece: bytes) -> bytes:
        """The events that `piece` completes and that go on."""
        out = super().feed(piece)
        # Nearly all pieces have none, and are passed on whole.
        if _USAGE in out and any(mark in out for mark in _NO_CHOICES):
            return b"".join(event for event in _events(out) if not _is_usage_alone(event))
        return out


def passing(stream_type: str, *, hides_usage: bool) -> WholeEvents:
    """For a stream of this content type."""
    if stream_type == _LINES_TYPE:
        return WholeEvents(_LINE_ENDS)
    return WithoutUsage() if hides_usage else WholeEvents()


def _events(data: bytes) -> Iterator[bytes]:
    """Each with its end; what is left behind the last is one too."""
    start = 0
    for found in _END.finditer(data):
        yield data[start : found.end()]
        start = found.end()
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
