"""Deadlines: never early, in order, forgotten when told, on either kind of alarm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from headrace.bench.timer import Timer

MS = 1_000_000


def _other_clock() -> int:
    """The same clock, but not the function that the kernel's alarm is chosen for."""
    return time.monotonic_ns()


CLOCKS = pytest.mark.parametrize("clock_ns", [time.monotonic_ns, _other_clock])


@CLOCKS
async def test_calls_come_in_order_and_never_early(clock_ns: Callable[[], int]) -> None:
    timer = Timer(asyncio.get_running_loop(), clock_ns)
    now = time.monotonic_ns()
    done = asyncio.Event()
    called: list[tuple[int, int]] = []
    offsets = [9 * MS, 3 * MS, 3 * MS, 0, -5 * MS, 14 * MS]
    for index, offset in enumerate(offsets):
        timer.call_at_ns(
            now + offset, lambda index=index: called.append((index, time.monotonic_ns()))
        )
    timer.call_at_ns(now + 15 * MS, done.set)
    await asyncio.wait_for(done.wait(), 10)
    timer.close()
    assert [index for index, _ in called] == [4, 3, 1, 2, 0, 5]
    assert all(at >= now + offsets[index] for index, at in called)


@CLOCKS
async def test_cancelled_calls_are_not_made(clock_ns: Callable[[], int]) -> None:
    timer = Timer(asyncio.get_running_loop(), clock_ns)
    now = time.monotonic_ns()
    done = asyncio.Event()
    called: list[int] = []
    first = timer.call_at_ns(now + MS, lambda: called.append(1))
    timer.call_at_ns(now + 2 * MS, lambda: called.append(2))
    timer.call_at_ns(now + 3 * MS, done.set)
    first.cancel()
    await asyncio.wait_for(done.wait(), 10)
    timer.close()
    assert called == [2]


@CLOCKS
async def test_calls_may_ask_for_more_and_for_the_end(clock_ns: Callable[[], int]) -> None:
    timer = Timer(asyncio.get_running_loop(), clock_ns)
    done = asyncio.Event()
    left = 5

    def again() -> None:
        nonlocal left
        left -= 1
        if left:
            timer.call_at_ns(time.monotonic_ns() + MS, again)
        else:
            timer.close()
            done.set()

    timer.call_at_ns(0, again)
    await asyncio.wait_for(done.wait(), 10)
    assert left == 0


async def test_a_call_that_fails_does_not_stop_the_others() -> None:
    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _loop, context: told.append(context.get("exception")))
    timer = Timer(loop)
    done = asyncio.Event()

    def fail() -> None:
        raise ValueError("on purpose")

    timer.call_at_ns(0, fail)
    timer.call_at_ns(1, done.set)
    await asyncio.wait_for(done.wait(), 10)
    timer.close()
    assert [type(error) for error in told] == [ValueError]
