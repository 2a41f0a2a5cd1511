"""The status line: rates of an interval, silence while nothing happens."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from headrace.config.server_settings import ServerConfig
from headrace.engine.messages import Stats
from headrace.server.observability.status_line import StatusLine, tell_status
from headrace.server.state import ServerState
from tests.server.conftest import served_model
from tests.server.mock_engine import INFO, MockEngine, says

MEASURED = msgspec.structs.replace(INFO, read_limit_bytes_per_s=1e9)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_of_the_time_since_the_line_before() -> None:
    clock = Clock()
    before = Stats(
        steps=5, prompt_tokens=1000, generation_tokens=50, busy_s=1.0, spec_draft_tokens=100,
        spec_accepted_tokens=100,
    )  # fmt: skip
    line = StatusLine(clock, before)
    clock.now += 10
    now = Stats(
        steps=9,
        num_running=2,
        num_preempted=1,
        blocks_total=8,
        blocks_owned=2,
        prompt_tokens=1400,
        generation_tokens=75,
        prefix_queries_tokens=400,
        prefix_hits_tokens=100,
        spec_draft_tokens=140,
        spec_accepted_tokens=125,
        moved_bytes=10**9,
        busy_s=5.0,
    )
    assert line.next(now, MEASURED, queued=3) == (
        "running 2, waiting 4, KV 25.0 %, prompt 40.0 tok/s, generation 2.5 tok/s, "
        "prefix hits 25.0 %, drafts accepted 62.5 % of 40, MBU 25 %"
    )
    clock.now += 5
    later = msgspec.structs.replace(now, steps=10, generation_tokens=80)
    text = line.next(later, INFO, queued=0)
    assert text == "running 2, waiting 1, KV 25.0 %, prompt 0.0 tok/s, generation 1.0 tok/s"


def test_idle_is_said_once() -> None:
    clock = Clock()
    line = StatusLine(clock, Stats())
    told = []
    for stats in (Stats(), Stats(steps=1), Stats(steps=1), Stats(steps=1), Stats(steps=2)):
        clock.now += 10
        told.append(line.next(stats, INFO, queued=0) is not None)
    assert told == [False, True, True, False, True]


def test_a_new_engine_that_made_more_steps_has_no_negative_rates() -> None:
    clock = Clock()
    line = StatusLine(clock, Stats(steps=5, prompt_tokens=1000, generation_tokens=50, busy_s=1.0))
    clock.now += 10
    text = line.next(Stats(steps=9, prompt_tokens=400, generation_tokens=80, busy_s=2.0), INFO, 0)
    assert text is not None
    assert "prompt 40.0 tok/s, generation 8.0 tok/s" in text


def test_who_waits_is_something_that_happens() -> None:
    clock = Clock()
    line = StatusLine(clock, Stats())
    clock.now += 10
    assert line.next(Stats(), INFO, queued=1) is not None


def test_totals_that_begin_anew_are_what_was_done_since() -> None:
    clock = Clock()
    line = StatusLine(clock, Stats(steps=100, generation_tokens=1000))
    clock.now += 10
    text = line.next(Stats(steps=2, generation_tokens=20), INFO, queued=0)
    assert text is not None and "generation 2.0 tok/s" in text


async def _tell(every_s: float, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is logged over three intervals, in the first of which the engine did something."""
    clock = Clock()
    state = ServerState(config=ServerConfig(status_interval=every_s), clock=clock)
    engine = MockEngine(says("x"))
    state.set_model(served_model(engine, tokenizer=None))
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        if len(slept) == 3:
            raise asyncio.CancelledError
        slept.append(seconds)
        clock.now += seconds
        engine.stats = Stats(steps=1, generation_tokens=8)

    with caplog.at_level(logging.INFO, "headrace.status"):
        try:
            await tell_status(state, sleep=sleep)
        except asyncio.CancelledError:
            assert slept == [every_s] * 3
    state.close()
    return [record.getMessage() for record in caplog.records if record.name == "headrace.status"]


async def test_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    first, last = await _tell(4.0, caplog)
    assert "generation 2.0 tok/s" in first
    assert "generation 0.0 tok/s" in last


async def test_off(caplog: pytest.LogCaptureFixture) -> None:
    assert await _tell(0.0, caplog) == []
