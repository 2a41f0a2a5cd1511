"""A timeout for answers of another process that tolerates a busy event loop.

Reading a large file again, or hundreds of simultaneous requests, may block the loop for longer than
the timeout. A plain timeout would then discard an answer that came long ago and is not yet handled.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

# Time for the loop to handle what has arrived.
_LOOK_S = 0.05


class InTime:
    """A context that raises TimeoutError after timeout_s, unless what ends it has arrived by
    then."""

    __slots__ = ("_bound", "_late", "_timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._bound = asyncio.timeout(None)
        self._late: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._bound.__aenter__()
        self._late = asyncio.get_running_loop().call_later(self._timeout_s, self._look)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._late is not None:
            self._late.cancel()
        await self._bound.__aexit__(kind, error, traceback)

    def _look(self) -> None:
        self._bound.reschedule(asyncio.get_running_loop().time() + _LOOK_S)
