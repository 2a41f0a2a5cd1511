"""Requests that come in one moment begin in order, so many in each turn of the loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.http.starts import Starts


@given(
    per_turn=st.integers(1, 5),
    comings=st.lists(st.integers(0, 12), max_size=8),
)
def test_never_more_in_one_turn_and_none_forgotten(per_turn: int, comings: list[int]) -> None:
    """comings: how many come in each turn."""
    begun: list[tuple[int, int]] = []

    async def run() -> None:
        starts, turn, number = Starts(per_turn), 0, 0

        def start(which: int) -> None:
            begun.append((turn, which))

        for count in [*comings, *[0] * (sum(comings) + 2)]:
            for _ in range(count):
                starts.begin(partial(start, number))
                number += 1
            await asyncio.sleep(0)
            turn += 1

    asyncio.run(run())
    assert [which for _, which in begun] == list(range(sum(comings)))
    turns = [turn for turn, _ in begun]
    # A turn of the queue may fall before or after what comes in a turn of the test.
    assert all(turns.count(turn) <= 2 * per_turn for turn in turns)


def test_one_that_fails_keeps_nobody_waiting_and_changes_no_order() -> None:
    begun: list[str] = []
    failures: list[Any] = []

    def fails() -> None:
        raise ValueError("broken")

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told))
        starts = Starts(2)
        for start in (
            *(partial(begun.append, name) for name in "ab"),
            fails,
            partial(begun.append, "c"),
        ):
            starts.begin(start)
        await asyncio.sleep(0)
        starts.begin(partial(begun.append, "d"))
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert begun == ["a", "b", "c", "d"]
    assert [str(told["exception"]) for told in failures] == ["broken"]


def test_one_alone_begins_at_once() -> None:
    async def run() -> list[str]:
        begun: list[str] = []
        starts = Starts(1)
        starts.begin(lambda: begun.append("first"))
        starts.begin(lambda: begun.append("second"))
        return list(begun)

    assert asyncio.run(run()) == ["first"]
