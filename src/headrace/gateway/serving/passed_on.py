"""A stream of events that is passed on as it is, but for those the client did not ask for.

The gateway asks every provider for its usage, since it has to bill; a client that did not gets the
stream without that event. Only what ends events (RFC: a blank line) is looked for; the bytes of an
event are not touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_END = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_LONGEST_END = 4
# Of a chat completion's last event: no choices, and the usage.
_NO_CHOICES = (b'"choices":[]', b'"choices": []')
_USAGE = b'"usage"'
_MOST_BYTES = 4 * 2**20


class WithoutUsage:
    """Feed it bytes; it gives those that go on. What it holds back is at most one event."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """The events that `piece` completes, without those of usage alone."""
        # No event has ended in what was held, so only what is new is looked at.
        new_at = max(0, len(self._held) - _LONGEST_END + 1)
        data = self._held + piece if self._held else piece
        ended = max(
            at + len(mark) if (at := data.rfind(mark, new_at)) >= 0 else 0 for mark in _ENDS
        )
        out, self._held = data[:ended], data[ended:]
        # Nearly all pieces have none, and are passed on whole.
        if any(mark in out for mark in _NO_CHOICES) and _USAGE in out:
            out = b"".join(event for event in _events(out) if not _is_usage_alone(event))
        if len(self._held) > _MOST_BYTES:  # no event is so long: let it be somebody else's trouble
            out, self._held = out + self._held, b""
        return out

    def end(self) -> bytes:
        """What was cut in the middle of an event."""
        left, self._held = self._held, b""
        return left


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
