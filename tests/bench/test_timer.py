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


class FakeLoop:
    """One call to come; `run` makes it, which is a round of the loop."""

    def __init__(self) -> None:
        self.callback: Callable[[], None] | None = None

    def call_later(self, _wait_s: float, callback: Callable[[], None]) -> FakeLoop:
        self.callback = callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        callback, self.callback = self.callback, None
        assert callback is not None
        callback()


def test_a_call_that_another_asks_for_is_made_in_a_later_round() -> None:
    loop = FakeLoop()
    timer = Timer(loop, lambda: 1000)  # type: ignore[arg-type]
    called: list[str] = []

    def again() -> None:
        called.append("again")
        if len(called) < 50:
            timer.call_at_ns(0, again)  # due before all others

    timer.call_at_ns(5, again)
    timer.call_at_ns(6, lambda: called.append("asked before"))
    loop.run()
    assert called == ["again", "asked before"]
    for round_number in range(3, 10):
        loop.run()
        assert len(called) == round_number


def test_what_is_due_behind_a_call_that_fails_or_cancels_it() -> None:
    loop = FakeLoop()
    timer = Timer(loop, lambda: 1000)  # type: ignore[arg-type]
    called: list[int] = []

    def fail() -> None:
        third.cancel()
        raise ValueError("on purpose")

    timer.call_at_ns(1, fail)
    timer.call_at_ns(2, lambda: called.append(2))
    third = timer.call_at_ns(3, lambda: called.append(3))
    with pytest.raises(ValueError, match="purpose"):
        loop.run()
    loop.run()
    assert called == [2]
    timer.call_at_ns(4, timer.close)
    timer.call_at_ns(5, lambda: called.append(5))
    loop.run()
    assert called == [2]
