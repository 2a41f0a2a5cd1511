"""A time limit for a task's work: `asyncio.timeout` at a third of its cost.

Each request has two, which were a fiftieth of its CPU time: `asyncio.timeout` can be moved and read
while it runs, and this cannot.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class Within:
    """A context whose work is cancelled after timeout_s and raises TimeoutError. Cancellation from
    elsewhere stays what it is. For one use."""

    __slots__ = ("_cancelling", "_over", "_task", "_timeout_s", "_timer")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = task.get_loop().call_later(self._timeout_s, self._end)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if not self._over:
            return
        # Otherwise the task was cancelled from elsewhere as well, which is passed on.
        ours = self._task.uncancel() <= self._cancelling
        if ours and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def _end(self) -> None:
        self._over = True
        self._task.cancel()
