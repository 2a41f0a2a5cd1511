"""Keep-alive events for a client's stream whose answer is held back."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from headrace.gateway.serving.incoming import ClientGoneError, Sink

Header = tuple[str, str]


class Heartbeats:
    """A Sink around another that writes keep-alive events while it is entered.

    One is written every `every_s` seconds. The first is preceded by the response head; from then on
    `begun` holds and the answer's own head is left out.
    """

    def __init__(self, sink: Sink, head: list[Header], beat: bytes, every_s: float) -> None:
        self._sink = sink
        self._head = head
        self._beat = beat
        self._every_s = every_s
        self._beating: asyncio.Task[None] | None = None
        self.begun = False

    async def __aenter__(self) -> None:
        if self._beat:
            self._beating = asyncio.ensure_future(self._go_on())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClientGoneError):
                await self._beating

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if not self.begun:
                self.begun = True
                await self._sink.start(200, self._head)
            await self._sink.write(self._beat)

    async def start(self, status: int, headers: list[Header]) -> None:
        """See Sink."""
        if not self.begun:
            await self._sink.start(status, headers)

    async def write(self, piece: bytes) -> None:
        """See Sink."""
        await self._sink.write(piece)

    async def last(self, piece: bytes) -> None:
        """See Sink."""
        await self._sink.last(piece)

    async def end(self) -> None:
        """See Sink."""
        await self._sink.end()
