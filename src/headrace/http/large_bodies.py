"""Work on large bodies, one at a time in a thread of its own, keys in turn.

A decoder holds the interpreter's lock while it works, so two of them at once would stop the event
loop for as long as both take. Whatever waits for the lock goes on between two steps of the work and
between two bodies. Small bodies never wait for a large one, and of large ones none waits for more
than one of each other key. A turn ends with the work: nobody has one while waiting for anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from headrace.http.key_queue import KeyQueue

T = TypeVar("T")


class LargeBodies:
    """The thread for large bodies, and those that wait for it. Used from one event loop.

    least_bytes: smaller bodies are worked on at once, in the loop. name: of the thread.
    """

    def __init__(self, least_bytes: int, name: str) -> None:
        self.least_bytes = least_bytes
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting: KeyQueue[asyncio.Future[None]] = KeyQueue()
        self._is_taken = False

    async def result(self, key: str, size: int, work: Callable[[], T]) -> T:
        """The result of `work` on a body of so many bytes that came with a key."""
        if size < self.least_bytes:
            return work()
        if self._is_taken:
            await self._turn(key)
        self._is_taken = True
        context = copy_context()  # what is logged there is logged for this request
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: context.run(work)
            )
        finally:
            self._next()

    def close(self) -> None:
        """Let the thread end; work that was not begun is dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, key: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(key, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.discard(key, turn)
            else:  # it was given in the same moment
                self._next()
            raise

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.take(next(self._waiting.keys()))
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
