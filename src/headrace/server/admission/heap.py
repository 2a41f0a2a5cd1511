"""The memory of loading and of large requests goes back to the system when they are over.

The C library keeps what was freed for later: a server that once tokenized 16 MB would stay hundreds
of megabytes larger than it needs to be, and one that built a tokenizer of 150,000 words some ten.
Where the library cannot trim its heap, nothing is done.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import Executor
from functools import cache

# Smaller bodies leave nothing worth the work.
LARGE_BODY_BYTES = 2**20
# By then the reply's objects are gone, and of many large requests the last few are over.
DELAY_S = 1.0


class HeapTrim:
    """Trims the heap a while after large requests. Used from one event loop."""

    def __init__(self, workers: Executor) -> None:
        """workers: where trimming is done, which takes milliseconds."""
        self._workers = workers
        self._planned: asyncio.TimerHandle | None = None

    def after(self, body_bytes: int) -> None:
        """A request with a body of so many bytes is over."""
        if body_bytes < LARGE_BODY_BYTES or self._planned is not None:
            return
        self._planned = asyncio.get_running_loop().call_later(DELAY_S, self._trim)

    def close(self) -> None:
        """Nothing is trimmed any more."""
        if self._planned is not None:
            self._planned.cancel()

    def _trim(self) -> None:
        self._planned = None
        self._workers.submit(trim_heap)


def trim_heap() -> None:
    """Give the system what the C library keeps of freed memory; takes milliseconds."""
    if (trim := _malloc_trim()) is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's; None where the C library is another."""
    try:
        trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except OSError:
        trim = None
    return trim
