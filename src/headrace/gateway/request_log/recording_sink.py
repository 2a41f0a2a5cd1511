"""The way back to a client, with what went over it remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headrace.gateway.request_log.line import Heard
from headrace.gateway.serving.incoming import Sink


class RecordingSink:
    """A sink that remembers what the client took, so much of it at most; of a client that went,
    what came before.
    """

    def __init__(self, sink: Sink, most_bytes: int) -> None:
        self._sink = sink
        self._most_bytes = most_bytes
        self._pieces: list[bytes] = []
        self._kept_bytes = 0
        self._bytes = 0

    @property
    def heard(self) -> Heard:
        """The answer so far."""
        return Heard(self._pieces, self._bytes, self._kept_bytes < self._bytes)

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        """See Sink."""
        await self._sink.start(status, headers)

    async def write(self, piece: bytes) -> None:
        """See Sink."""
        await self._take(self._sink.write, piece)

    async def last(self, piece: bytes) -> None:
        """See Sink."""
        await self._take(self._sink.last, piece)

    async def end(self) -> None:
        """See Sink."""
        await self._sink.end()

    async def _take(self, send: Callable[[bytes], Awaitable[None]], piece: bytes) -> None:
        try:
            await send(piece)
        except asyncio.CancelledError:
            self._hear(piece)  # it went out before the client did, or with it
            raise
        self._hear(piece)

    def _hear(self, piece: bytes) -> None:
        if self._kept_bytes == self._bytes:  # nothing was left out before
            kept = piece[: self._most_bytes - self._kept_bytes]
            if kept:
                self._pieces.append(kept)
                self._kept_bytes += len(kept)
        self._bytes += len(piece)
