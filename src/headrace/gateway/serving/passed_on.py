"""A stream of events that is passed on as it is, but for those the client did not ask for.

The gateway asks every provider for its usage, since it has to bill; a client that did not gets the
stream without that event. Only what ends events (RFC: a blank line) is looked for; the bytes of an
event are not touched.
"""

from __future__ import annotations

import msgspec

_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
# Of a chat completion's last event: no choices, and the usage.
_NO_CHOICES = (b'"choices":[]', b'"choices": []')
_USAGE = b'"usage"'
_MOST_BYTES = 4 * 2**20


class WithoutUsage:
    """Feed it bytes; it gives those that go on. What it holds back is at most one event."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> bytes:
        """The events that `piece` completes, without those of usage alone."""
        self._held += piece
        out = bytearray()
        start = 0
        while (end := self._end(start)) > 0:
            event = bytes(self._held[start:end])
            start = end
            if not _is_usage_alone(event):
                out += event
        del self._held[:start]
        if len(self._held) > _MOST_BYTES:  # no event is so long: let it be somebody else's trouble
            out += self._held
            self._held.clear()
        return bytes(out)

    def end(self) -> bytes:
        """What was cut in the middle of an event."""
        left = bytes(self._held)
        self._held.clear()
        return left

    def _end(self, start: int) -> int:
        """Where the first event from `start` on ends, -1 if it does not yet."""
        found = [at + len(mark) for mark in _ENDS if (at := self._held.find(mark, start)) >= 0]
        return min(found, default=-1)


def _is_usage_alone(event: bytes) -> bool:
    if _USAGE not in event or not any(mark in event for mark in _NO_CHOICES):
        return False
    _, _, data = event.partition(b"data:")
    try:
        value = msgspec.json.decode(data.strip())
    except msgspec.DecodeError:
        return False
    return isinstance(value, dict) and value.get("choices") == [] and bool(value.get("usage"))
