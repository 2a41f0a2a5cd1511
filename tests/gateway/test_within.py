"""A bound in time beside `asyncio.timeout`, which does the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.gateway.within import Within


async def _in_time() -> str:
    with Within(5):
        await asyncio.sleep(0)
    return "done"


async def _too_late() -> str:
    with Within(0.001):
        await asyncio.sleep(5)
    return "done"


async def test_what_is_done_in_time_is_left_alone() -> None:
    assert await _in_time() == "done"
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


async def test_what_takes_longer_ends_there_and_the_task_goes_on() -> None:
    with pytest.raises(TimeoutError):
        await _too_late()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    await asyncio.sleep(0)


async def test_an_error_within_is_told_as_it_is() -> None:
    with pytest.raises(ValueError, match="ours"), Within(5):
        raise ValueError("ours")


async def test_the_inner_bound_ends_what_is_within_it_alone() -> None:
    with Within(5):
        with pytest.raises(TimeoutError):
            await _too_late()
        await asyncio.sleep(0)


async def test_the_outer_bound_goes_through_the_inner_one() -> None:
    with pytest.raises(TimeoutError), Within(0.001), Within(5):
        await asyncio.sleep(5)


async def _cancelled(work: Callable[[], Coroutine[Any, Any, object]]) -> asyncio.Task[object]:
    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task


async def test_a_cancel_from_elsewhere_remains_one() -> None:
    async def work() -> None:
        with Within(5):
            await asyncio.sleep(5)

    assert (await _cancelled(work)).cancelled()


async def test_a_cancel_from_elsewhere_at_the_same_moment_remains_one() -> None:
    async def work() -> None:
        bound = Within(5)
        with bound:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                bound._end()  # its time is over while the cancelling goes on
                raise

    assert (await _cancelled(work)).cancelled()
