"""Work that takes long, away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


async def off_loop(workers: Executor, size: int, limit: int, work: Callable[[], T]) -> T:
    """The result of `work`, done in a worker thread where `size` is at least `limit`."""
    if size < limit:
        return work()
    context = copy_context()  # what is logged there is logged for this call
    return await asyncio.get_running_loop().run_in_executor(workers, lambda: context.run(work))
