"""What ends a stream that its own end does not: too many bytes, or bytes that say nothing.

A provider's comments and pings keep a connection alive for ever, and a stream without an end would
be passed on until `total_s`. Both are seen here, beside the pause between two pieces that the
connection itself limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.gateway.upstream.errors import UpstreamError
from headrace.protocol.neutral.event import Event

BYTES_PER_TOKEN = 4096
"""The most that a token takes in a stream: an event of its own, with twenty alternatives."""

SILENT_PAUSES = 5
"""Comments say that a provider works on: the longest pause between events is so many `idle_s`."""

_S_PER_NS = 1e-9


class StreamWatch:
    """The bytes of a stream, and since when it says nothing.

    `most_bytes` limits its size, `idle_s` is the longest pause between two pieces, None for none.
    """

    def __init__(self, most_bytes: int, idle_s: float | None, clock_ns: Callable[[], int]) -> None:
        self._most_bytes = most_bytes
        self._silent_s = None if idle_s is None else SILENT_PAUSES * idle_s
        self._clock_ns = clock_ns
        self._bytes = 0
        self._silent_since_ns: int | None = None

    def took(self, piece: bytes, events: Sequence[Event], *, silent: bool) -> None:
        """A piece arrived, which held these events. silent: without an event it says nothing, as a
        part of an image does. Raises UpstreamError.
        """
        self._bytes += len(piece)
        if self._bytes > self._most_bytes:
            raise UpstreamError(
                "too_large",
                f"the stream has more than {self._most_bytes:,} bytes, which is the limit "
                f"(listen.max_reply_bytes, or {BYTES_PER_TOKEN:,} for each requested token)",
            )
        if events or not silent or self._silent_s is None:
            self._silent_since_ns = None
        elif self._silent_since_ns is None:
            self._silent_since_ns = self._clock_ns()
        elif (self._clock_ns() - self._silent_since_ns) * _S_PER_NS > self._silent_s:
            raise UpstreamError(
                "timeout",
                f"the stream had comments and no content for {self._silent_s:g} s "
                f"({SILENT_PAUSES} times timeouts.idle_s)",
            )


def most_stream_bytes(most_reply_bytes: int, most_tokens: int | None, choices: int) -> int:
    """`max_reply_bytes`, or more where a request allows more tokens than fit into that."""
    return max(most_reply_bytes, (most_tokens or 0) * choices * BYTES_PER_TOKEN)
