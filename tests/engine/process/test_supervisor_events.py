"""The watch of an engine by a clock that goes when told: when it kills, waits and gives up."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.messages import Loading
from headrace.engine.process.client import EngineClient
from headrace.engine.process.supervisor import SETTLED_S, SupervisedEngine
from headrace.engine.process.supervisor_events import (
    EngineFell,
    EngineGivenUp,
    EngineRecovered,
    EngineRestarting,
    Event,
    Supervision,
)
from headrace.errors import ConfigError, EngineDeadError, EngineRestartingError, HeadraceError
from tests.engine.process.test_client import request


class Time:
    """Seconds that pass by `pass_by` only; sleepers wake in order."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, len(self.slept), waker))
        await waker

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_by(self, seconds: float) -> None:
        end_s = self.now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, waker = heapq.heappop(self._sleepers)
            self.now = max(self.now, due_s)
            if not waker.done():
                waker.set_result(None)
            await self.settle()
        self.now = end_s


class FakeClient:
    """An engine process that answers pings as long as `answers`."""

    def __init__(self) -> None:
        self.heartbeats, self.answers, self.pings = 0, True, 0
        self.alive, self.failure, self.exit_code = True, "", 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.killed, self.closed = 0, 0

    def ping(self) -> None:
        self.pings += 1
        self.heartbeats += self.answers

    def dies(self, failure: str) -> None:
        self.alive, self.failure = False, self.failure or failure
        if not self.ended.done():
            self.ended.set_result(None)

    async def kill(self, failure: str) -> None:
        self.killed += 1
        self.exit_code = -9
        self.dies(failure)

    async def close(self) -> None:
        self.closed += 1
        self.dies("closed")

    def generate(self, *_: object, **__: object) -> FakeClient:
        return self


class World:
    """A supervised engine whose engines are fakes; `outcomes` are those of the next launches."""

    def __init__(self, **how: Any) -> None:
        self.time = Time()
        self.events: list[Event] = []
        self.clients: list[FakeClient] = []
        self.outcomes: list[Exception | float] = []
        self.supervision = Supervision(
            on_event=self.events.append, clock=self.time, sleep=self.time.sleep,
            rng=random.Random(1), launch=self._launch, **how,
        )  # fmt: skip

    async def _launch(
        self, _config: EngineConfig, *, on_loading: Callable[[Loading], None]
    ) -> EngineClient:
        outcome = self.outcomes.pop(0) if self.outcomes else 0.0
        if isinstance(outcome, Exception):
            raise outcome
        on_loading(Loading())
        if outcome:
            await self.time.sleep(outcome)
        self.clients.append(FakeClient())
        return cast(EngineClient, self.clients[-1])

    async def start(self) -> SupervisedEngine:
        engine = await SupervisedEngine.start(EngineConfig(), self.supervision)
        await self.time.settle()
        return engine

    def waits(self) -> list[float]:
        return [event.wait_s for event in self.events if isinstance(event, EngineRestarting)]


async def test_a_restart_that_is_asked_for_waits_for_nothing_and_counts_anew() -> None:
    world = World(max_restarts=9)
    engine = await world.start()
    for _ in range(3):  # it fails young, so that the next wait is one
        world.clients[-1].dies("again")
        await world.time.pass_by(3)
    assert world.waits()[-1] > 0
    asked_s = world.time.now
    await engine.restart("another model")
    await world.time.settle()
    await world.time.pass_by(0)
    assert world.events[-3:] == [
        EngineFell("requested", "another model"),
        EngineRestarting("requested", 0, 9, 0.0),
        EngineRecovered(0.0),
    ]
    assert (engine.status.state, world.time.now) == ("ready", asked_s)
    world.clients[-1].dies("once more")
    await world.time.pass_by(3)
    assert world.waits()[-1] == 0.0, "the first failure of a new row"
    await engine.close()


async def test_the_first_restart_is_at_once_and_later_ones_wait_longer_until_it_is_given_up() -> (
    None
):
    world = World(max_restarts=9)
    engine = await world.start()
    world.outcomes = [ConfigError(f"no memory {i}") for i in range(9)]
    world.clients[0].dies("the engine process ended with exit code -9 (SIGKILL)")
    await world.time.pass_by(500)
    waits = world.waits()
    assert waits[0] == 0
    for wait_s, most_s in zip(waits[1:], (0.5, 1, 2, 4, 8, 16, 30, 30), strict=True):
        assert most_s / 2 <= wait_s <= most_s
    assert world.events[0] == EngineFell(
        "died", "the engine process ended with exit code -9 (SIGKILL)"
    )
    assert world.events[-1] == EngineGivenUp("no memory 8")
    assert engine.restarts == {"died": 1, "stalled": 0, "failed_to_load": 8, "requested": 0}
    status = engine.status
    assert (status.state, status.restarts, status.failure) == ("failed", 9, "no memory 8")
    assert status.retry_after_s is None
    with pytest.raises(EngineDeadError, match="no memory 8") as caught:
        engine.generate(request("late"))
    assert not isinstance(caught.value, EngineRestartingError)
    await engine.close()


async def test_requests_are_told_when_to_come_again() -> None:
    world = World()
    world.outcomes = [4.0]
    starting = asyncio.ensure_future(world.start())
    await world.time.pass_by(5)
    engine = await starting
    world.outcomes = [4.0]
    world.clients[0].dies("gone")
    with pytest.raises(EngineRestartingError, match="gone"):
        engine.generate(request("at once"))
    await world.time.settle()
    assert engine.status.state == "restarting"
    assert engine.status.retry_after_s == 4
    await world.time.pass_by(3)
    with pytest.raises(EngineRestartingError) as caught:
        engine.generate(request("later"))
    assert caught.value.retry_after_s == 1
    with pytest.raises(EngineRestartingError):
        await engine.reset_prefix_cache()
    await world.time.pass_by(1)
    assert engine.status.alive
    assert engine.generate(request("now")) is cast(Any, world.clients[1])
    assert list(engine.recoveries_s) == [4]
    assert world.events[-1] == EngineRecovered(4)
    await engine.close()


async def test_a_run_of_ten_minutes_counts_anew() -> None:
    world = World(max_restarts=2)
    engine = await world.start()
    for run_s in (1.0, SETTLED_S, 1.0, SETTLED_S + 5):
        await world.time.pass_by(run_s)
        world.clients[-1].dies("gone")
        await world.time.pass_by(1)
        assert engine.status.alive, run_s
    for _ in range(2):
        world.clients[-1].dies("gone")
        await world.time.pass_by(1)
    assert engine.status.state == "failed"
    assert sum(engine.restarts.values()) == 5
    # The first of all, and those that served for long, have their successor at once.
    assert [wait_s > 0 for wait_s in world.waits()] == [False, False, True, False, True]
    await engine.close()


async def test_no_restarts_where_none_are_wanted() -> None:
    world = World(max_restarts=0)
    engine = await world.start()
    world.clients[0].dies("gone")
    assert engine.status.state == "failed"
    with pytest.raises(EngineDeadError, match="gone"):
        engine.generate(request("x"))
    await world.time.settle()
    assert world.events == [EngineFell("died", "gone"), EngineGivenUp("gone")]
    await engine.close()


async def test_silence_is_a_stall_and_any_sign_of_life_is_none() -> None:
    world = World(stall_timeout_s=30)
    engine = await world.start()
    first = world.clients[0]
    await world.time.pass_by(100)
    assert first.pings >= 100
    first.answers = False
    for _ in range(10):  # an output now and then, though no ping is answered
        await world.time.pass_by(25)
        assert 20 <= engine.status.silent_s <= 26
        first.heartbeats += 1
    await world.time.pass_by(29)
    assert (first.killed, engine.status.state) == (0, "ready")
    await world.time.pass_by(3)
    assert first.killed == 1
    assert engine.status.alive
    assert engine.restarts["stalled"] == 1
    fell = world.events[0]
    assert isinstance(fell, EngineFell)
    assert fell.reason == "stalled"
    assert "the limit is 30 s (--engine-stall-timeout)" in fell.failure
    await engine.close()


async def test_a_server_that_stood_still_does_not_blame_the_engine() -> None:
    world = World(stall_timeout_s=30)
    engine = await world.start()
    client = world.clients[0]
    client.answers = False
    await world.time.pass_by(3)
    assert engine.status.silent_s > 0, "from here on every second counts"
    world.time.now += 1000  # stopped by a signal, or its machine slept
    await world.time.pass_by(5)
    assert client.killed == 0
    assert engine.status.alive
    client.heartbeats += 1
    await world.time.pass_by(5)
    assert engine.status.silent_s <= 6
    await engine.close()


async def test_loading_that_stalls_is_a_failed_attempt() -> None:
    world = World(stall_timeout_s=10, max_restarts=2)
    engine = await world.start()
    world.outcomes = [1e6, 0.0]
    world.clients[0].dies("gone")
    await world.time.pass_by(9)
    assert engine.status.state == "restarting"
    await world.time.pass_by(5)
    assert engine.status.alive
    assert engine.restarts == {"died": 1, "stalled": 0, "failed_to_load": 1, "requested": 0}
    assert any("loading stalled" in getattr(event, "failure", "") for event in world.events)
    await engine.close()


async def test_a_first_start_that_fails_is_not_tried_again() -> None:
    world = World()
    world.outcomes = [ConfigError("too large")]
    with pytest.raises(ConfigError, match="too large"):
        await world.start()
    world = World(stall_timeout_s=10)
    world.outcomes = [1e6]
    starting = asyncio.ensure_future(world.start())
    await world.time.pass_by(15)
    with pytest.raises(HeadraceError, match="loading stalled"):
        await starting
    assert world.events == []


@pytest.mark.parametrize("moment", ["serving", "waiting", "loading", "failed"])
async def test_close_ends_it_at_any_moment(moment: str) -> None:
    world = World(max_restarts=0 if moment == "failed" else 3)
    engine = await world.start()
    if moment != "serving":
        world.outcomes = [1e6] if moment == "loading" else [ConfigError("x"), ConfigError("x")]
        world.clients[0].dies("gone")
        await world.time.pass_by(0)
    num_events = len(world.events)
    await engine.close()
    await engine.close()
    await world.time.pass_by(1000)
    assert len(world.events) == num_events
    assert len(world.clients) == 1
    assert engine.status.failure == "the engine was closed"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_close_while_the_next_engine_becomes_ready_leaves_none() -> None:
    world = World()
    engine = await world.start()
    world.outcomes = [1.0]
    world.clients[0].dies("gone")
    await world.time.pass_by(0)
    world.time.now += 1
    closing: Awaitable[None] = asyncio.ensure_future(engine.close())
    await world.time.pass_by(1)
    await closing
    assert all(client.closed for client in world.clients)


async def test_a_watch_that_fails_is_a_clear_state_too() -> None:
    world = World()
    engine = await world.start()
    world.outcomes = [ZeroDivisionError("a bug")]
    world.clients[0].dies("gone")
    await world.time.pass_by(0)
    assert engine.status.state == "failed"
    assert "a bug" in engine.status.failure
    await engine.close()


async def test_a_watch_that_fails_leaves_no_engine_that_nobody_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: FakeClient) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(FakeClient, "ping", fails)
    world = World()
    engine = await world.start()
    assert (engine.status.state, world.clients[0].killed) == ("failed", 1)
    await engine.close()


@pytest.mark.parametrize("turns", range(8))
async def test_an_engine_that_becomes_ready_as_the_watch_ends_is_closed(turns: int) -> None:
    world = World()
    engine = await world.start()
    world.outcomes = [1.0]
    world.clients[0].dies("gone")
    await world.time.pass_by(0)
    for _, _, waker in world.time._sleepers:
        if not waker.done():
            waker.set_result(None)
    for _ in range(turns):
        await asyncio.sleep(0)
    await engine.close()
    assert all(client.closed or client.killed for client in world.clients)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_waits_have_a_bound_after_any_number_of_failures() -> None:
    world = World()
    engine = await world.start()
    engine._failed_young = 10_000
    assert 15 <= engine._wait_s() <= 30
    await engine.close()
