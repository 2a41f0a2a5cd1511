"""Text work that nobody generates from: what /tokenize and /detokenize do with large bodies.

A body of 16 MiB is cut into tokens for seconds, so such work has a thread of its own, one piece at
a time: a conversation that waits to be rendered is never behind it. Few may wait; used from one
event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.protocol.openai.error import RATE_LIMIT
from headrace.server.admission.off_loop import off_loop
from headrace.server.api_error import ApiError, retry_after

T = TypeVar("T")

# The largest take about ten seconds each: the last of so many is done before clients give up.
MAX_WAITING = 16
# Told to who finds no place: most work is far smaller than the largest.
RETRY_S = 5.0


def _one_thread() -> Executor:
    return ThreadPoolExecutor(1, "headrace-side")


@dataclass
class SideWork:
    """Threads that tokenize and detokenize large texts."""

    workers: Executor = field(default_factory=_one_thread)
    num_open: int = 0
    """Pieces of work that run or wait."""

    async def result(self, size: int, limit: int, work: Callable[[], T]) -> T:
        """The result of `work`, done here and now where `size` is below `limit`.

        Raises ApiError 429 where too much waits already.
        """
        if size < limit:
            return work()
        if self.num_open > MAX_WAITING:
            raise ApiError(
                429,
                f"{MAX_WAITING} large texts are waiting to be tokenized or detokenized; try "
                f"again in {RETRY_S:g} s, or send fewer than {limit} bytes",
                type=RATE_LIMIT,
                code="queue_full",
                headers=retry_after(RETRY_S),
            )
        self.num_open += 1
        try:
            return await off_loop(self.workers, size, limit, work)
        finally:
            self.num_open -= 1

    def close(self) -> None:
        """Let the thread end; what waits is not begun."""
        self.workers.shutdown(wait=False, cancel_futures=True)
