"""A bound in time for answers of another process, which a loop that was busy itself does not break.

A large file read anew, or hundreds of requests that came together, may hold the loop up for longer
than the bound. It would then give up an answer that came long ago and that it has not looked at.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

# Time for the loop to look at what has come, and to pass it on.
_LOOK_S = 0.05


class InTime:
    """What is done in it raises TimeoutError where it takes longer than timeout_s, and nothing has
    come by then that ends it."""

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
