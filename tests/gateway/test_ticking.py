"""Rounds of upkeep go on whatever a step raises."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headrace.gateway.ticking import tick
from headrace.gateway.workers.figures import counted
from headrace.telemetry.series import CounterSeries


async def test_a_step_that_raises_ends_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rounds: list[int] = []
    done = asyncio.Event()

    async def fails() -> None:
        raise OverflowError("can't serialize ints >= 2**64")

    def goes_on() -> None:
        rounds.append(len(rounds))
        if len(rounds) == 3:
            done.set()

    with caplog.at_level(logging.ERROR):
        task = asyncio.ensure_future(tick(fails, goes_on, every_s=0.001))
        async with asyncio.timeout(5):
            await done.wait()
        task.cancel()
    assert len(rounds) >= 3
    assert len(caplog.records) == 1


def test_figures_fit_the_wire() -> None:
    counter = CounterSeries("c", "", ("l",))
    counter.add(("a",), 2**70)
    (figures,), _ = counted([counter])
    assert figures.values == [(("a",), 2**64 - 1)]
