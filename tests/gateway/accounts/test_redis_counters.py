"""Counters in a real Redis: for all processes, and exact."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis.asyncio import Redis

from headrace.errors import ConfigError
from headrace.gateway.accounts import (
    Alert,
    Budget,
    Counters,
    LimitExceededError,
    Limits,
    MemoryCounters,
    RedisCounters,
    Reservation,
    StoresDownError,
    Terms,
    connect,
)
from headrace.gateway.accounts.counters import Counted, Wanted
from tests.gateway.accounts.machine import AccountsMachine
from tests.gateway.accounts.parts import (
    KEY,
    Clock,
    accounts_of,
    actual,
    budget,
    counters_at,
    demand,
    hierarchy,
    limits,
    standing,
    take,
)
from tests.gateway.accounts.redis_server import RedisServer, redis_program
from tests.waiting import until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One that stays alive; tests take keys of their own by a prefix."""
    server = RedisServer(redis_program(), tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


async def test_it_says_that_limits_hold_for_the_cluster(shared: RedisServer) -> None:
    counters = counters_at(shared, "says")
    assert counters.describe().reach == "cluster"
    assert counters.describe().reachable
    await counters.close()


async def test_ten_of_two_hundred_pass(shared: RedisServer) -> None:
    records = hierarchy(team=budget(10, unit="requests"))
    workers = [
        accounts_of(records, counters=counters_at(shared, "ten"), seed=seed) for seed in range(2)
    ]
    passed = await asyncio.gather(*(take(workers[n % 2], 0) for n in range(200)))
    assert sum(passed) == 10
    assert await standing(workers[0], "team", "red") == [(10, 0)]
    for worker in workers:
        await worker.close()


@pytest.mark.process
async def test_a_burst_is_not_taken_for_a_dead_redis(shared: RedisServer) -> None:
    # Not a moment's: what is asked here is whether waiting for one's turn counts as silence.
    counters = RedisCounters(connect(shared.url, timeout_s=2.0), prefix="burst")
    accounts = accounts_of(hierarchy(team=budget(700, unit="requests")), counters=counters)
    passed = await asyncio.gather(*(take(accounts, 0) for _ in range(1500)))
    assert sum(passed) == 700
    assert accounts.describe().counters.reachable
    await accounts.close()


@pytest.mark.process
async def test_four_processes_pass_ten_of_two_hundred(shared: RedisServer) -> None:
    start_s = time.time() + 3
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.gateway.accounts.redis_worker",
            shared.url,
            "50",
            str(start_s),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        for _ in range(4)
    ]
    outputs = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum(int(out) for out, _ in outputs) == 10


async def test_errors_say_the_same_as_in_one_process(shared: RedisServer) -> None:
    texts = []
    for counters in (None, counters_at(shared, "errors")):
        clock = Clock()
        accounts = accounts_of(
            hierarchy(user=budget(100, "1h"), key=limits(rpm=2)), clock, counters=counters
        )
        await take(accounts, 60)
        clock.step(61_000)
        await take(accounts, 30)
        for cost in (20, 101):
            with pytest.raises(LimitExceededError) as caught:
                await accounts.reserve(accounts.caller(KEY), demand(cost))
            texts.append((str(caught.value), caught.value.resets_at_ms, caught.value.used))
        await accounts.close()
    assert texts[:2] == texts[2:]


async def test_amounts_beyond_doubles_are_kept_exactly(shared: RedisServer) -> None:
    accounts = accounts_of(
        hierarchy(key=budget(2**60, "total")), counters=counters_at(shared, "large")
    )
    odd = 2**53 + 1
    for _ in range(3):
        assert await take(accounts, odd)
    assert await standing(accounts, "key", "k") == [(3 * odd, 0)]
    await accounts.close()


async def test_an_end_counts_once_however_often_it_is_sent(shared: RedisServer) -> None:
    clock = Clock()
    accounts = accounts_of(hierarchy(key=budget(100)), clock)
    (meter,) = accounts.caller(KEY).meters
    one, other = counters_at(shared, "once"), counters_at(shared, "once")
    wanted = [Wanted(meter, 50, 100)]
    counted = [Counted(meter, 50, 30)]
    assert await one.reserve("a", wanted, at_ms=clock.ms, when_down="closed") == ()
    # An answer was lost and it is asked again: it holds once.
    assert await one.reserve("a", wanted, at_ms=clock.ms, when_down="closed") == ()
    assert [tuple(r)[1:] for r in await one.read([meter], at_ms=clock.ms)] == [(0, 50)]
    await one.end("a", counted, reserved_ms=clock.ms, at_ms=clock.ms)
    await other.end("a", counted, reserved_ms=clock.ms, at_ms=clock.ms)
    assert [tuple(r)[1:] for r in await one.read([meter], at_ms=clock.ms)] == [(30, 0)]
    await one.close()
    await other.close()


async def test_the_lease_of_a_process_that_died_ends(shared: RedisServer) -> None:
    clock = Clock()
    records = hierarchy(key=budget(100), team=limits(concurrency=1))
    dead = accounts_of(records, clock, counters=counters_at(shared, "lease", lease_ms=1000))
    alive = accounts_of(
        records, clock, counters=counters_at(shared, "lease", lease_ms=1000), seed=1
    )
    reservation = await dead.reserve(dead.caller(KEY), demand(80))
    clock.step(999)
    assert not await take(alive, 80)
    clock.step(1)
    assert await take(alive, 80)
    # It was only slow: what it took is counted all the same, and nothing is given back twice.
    await reservation.settle(actual(70))
    assert await standing(alive, "key", "k") == [(150, 0)]
    assert await standing(alive, "team", "red") == [(0, 0)]
    await dead.close()
    await alive.close()


async def test_a_long_request_keeps_its_lease_while_its_process_ticks(shared: RedisServer) -> None:
    clock = Clock()
    records = hierarchy(key=budget(100))
    long = accounts_of(records, clock, counters=counters_at(shared, "renew", lease_ms=1000))
    other = accounts_of(records, clock, counters=counters_at(shared, "renew"), seed=1)
    reservation = await long.reserve(long.caller(KEY), demand(80))
    for _ in range(20):
        clock.step(500)
        await long.tick()
        assert not await take(other, 80)
    await reservation.release()
    assert await take(other, 80)
    await long.close()
    await other.close()


async def _begun_then_cancelled(server: RedisServer, work: Coroutine[Any, Any, object]) -> None:
    """Redis has been told what `work` wants when that is cancelled, and does it afterwards."""
    with server.paused():
        task = asyncio.ensure_future(work)
        await until(lambda: server.unread_bytes() > 0, "bytes that wait for a paused Redis")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancelled_reservation_is_given_back(shared: RedisServer) -> None:
    accounts = accounts_of(
        hierarchy(key=limits(concurrency=5)), counters=counters_at(shared, "cancel")
    )
    caller = accounts.caller(KEY)
    await (await accounts.reserve(caller, demand())).release()
    await _begun_then_cancelled(shared, accounts.reserve(caller, demand()))
    assert await standing(accounts, "key", "k") == [(0, 1)]
    await accounts.tick()
    assert await standing(accounts, "key", "k") == [(0, 0)]
    await accounts.close()


@pytest.mark.parametrize("turns", range(8))
async def test_whenever_a_reservation_is_cancelled(shared: RedisServer, turns: int) -> None:
    accounts = accounts_of(
        hierarchy(key=limits(concurrency=5)), counters=counters_at(shared, f"whenever{turns}")
    )
    caller = accounts.caller(KEY)
    await (await accounts.reserve(caller, demand())).release()
    task = asyncio.ensure_future(accounts.reserve(caller, demand()))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    (done,) = await asyncio.gather(task, return_exceptions=True)
    if not isinstance(done, BaseException):
        await done.release()
    await accounts.tick()
    assert await standing(accounts, "key", "k") == [(0, 0)]
    await accounts.close()


async def test_a_cancelled_settlement_counts_once(shared: RedisServer) -> None:
    accounts = accounts_of(hierarchy(key=budget(1000)), counters=counters_at(shared, "settle"))
    first, second = [await accounts.reserve(accounts.caller(KEY), demand(10)) for _ in range(2)]
    await _begun_then_cancelled(shared, first.settle(actual(7)))
    assert not first.is_open
    task = asyncio.ensure_future(second.settle(actual(5)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await accounts.tick()
    assert await standing(accounts, "key", "k") == [(12, 0)]
    await accounts.close()


async def test_what_came_too_late_is_given_back(shared: RedisServer) -> None:
    counters = RedisCounters(connect(shared.url, timeout_s=0.1), prefix="late")
    accounts = accounts_of(hierarchy(key=budget(100)), counters=counters)
    assert await take(accounts, 10)
    held = await accounts.reserve(accounts.caller(KEY), demand(20))
    with shared.paused():
        with pytest.raises(StoresDownError):
            await accounts.reserve(accounts.caller(KEY), demand(50))
        assert (await held.settle(actual(15))).counted is False
    await accounts.tick()
    assert accounts.describe().counters.reachable
    assert await standing(accounts, "key", "k") == [(25, 0)]
    await accounts.close()


async def test_what_stays_in_redis_has_an_end(shared: RedisServer) -> None:
    terms = Terms(
        limits=(Limits(rpm=9, tpm=99, concurrency=9),),
        budgets=(Budget(amount=99, window="1M", calendar=True), Budget(amount=99, window="total")),
    )
    counters = counters_at(shared, "ends")
    accounts = accounts_of(hierarchy(team=terms), counters=counters)
    for _ in range(3):
        assert await take(accounts, 1)
    assert len(counters._leased) == len(counters._waiting) == 0
    async with Redis(port=shared.port, decode_responses=True) as client:
        names = {name async for name in client.scan_iter("{ends}:*")}
        forever = {name for name in names if await client.pttl(name) < 0}
    kinds = sorted(name.split(":")[1] for name in names)
    assert kinds == ["m"] * 5 + ["s"] * 3
    assert forever == {"{ends}:m:team|red|nusd|total|rolling|*"}
    await accounts.close()


@pytest.mark.process
async def test_redis_and_memory_go_in_step(shared: RedisServer) -> None:
    """One long way of random requests over both: every refusal and every count is the same."""
    draw = random.Random(7)
    clock = Clock()
    records = hierarchy(
        organisation=budget(150, calendar=True),
        team=budget(30, "1h"),
        user=budget(60, "5m", unit="tokens"),
        key=limits(rpm=6, tpm=60, concurrency=4),
    )
    both = [
        accounts_of(records, clock, counters=counters, seed=5)
        for counters in (MemoryCounters(), counters_at(shared, "step", lease_ms=10**10))
    ]
    held: list[list[Reservation]] = []
    refusals = 0
    for _ in range(700):
        clock.step(draw.choice((0, 100, 499, 3000, 61_000, 400_000, 2_000_000)))
        if held and draw.random() < 0.5:
            pair = held.pop(draw.randrange(len(held)))
            took = actual(draw.randrange(12), tokens=draw.randrange(25))
            for reservation in pair:
                await reservation.settle(took)
        else:
            wants = demand(draw.randrange(12), tokens=draw.randrange(25))
            told: list[str] = []
            pair = []
            for accounts in both:
                try:
                    pair.append(await accounts.reserve(accounts.caller(KEY), wants))
                except LimitExceededError as error:
                    told.append(f"{error} {error.resets_at_ms}")
            assert told == [] or (len(told) == 2 and told[0] == told[1])
            refusals += bool(told)
            if pair:
                held.append(pair)
        for level, name in (
            ("organisation", "acme"),
            ("team", "red"),
            ("user", "ann"),
            ("key", "k"),
        ):
            memory, redis = [await standing(accounts, level, name) for accounts in both]
            assert memory == redis
    assert 100 < refusals < 600
    for accounts in both:
        await accounts.close()


async def test_alerts_are_given_once_for_the_cluster(shared: RedisServer) -> None:
    alerts: list[Alert] = []
    records = hierarchy(team=budget(100, thresholds=(0.5, 1.0)))
    workers = [
        accounts_of(records, counters=counters_at(shared, "alerts"), seed=seed, alerts=alerts)
        for seed in range(3)
    ]
    await asyncio.gather(*(take(workers[n % 3], 10) for n in range(12)))
    assert sorted(alert.threshold for alert in alerts) == [0.5, 1.0]
    for worker in workers:
        await worker.close()


def test_no_password_is_told() -> None:
    assert "hunter2" not in repr(connect("redis://user:hunter2@localhost:6379/0"))
    with pytest.raises(ConfigError) as caught:
        connect("http://user:hunter2@localhost")
    assert "hunter2" not in str(caught.value)


class _RedisMachine(AccountsMachine):
    """The machine over Redis; each run counts under names of its own."""

    server: RedisServer
    runs = 0

    def make_counters(self) -> Counters:
        type(self).runs += 1
        return counters_at(self.server, f"machine{self.runs}")


@pytest.mark.process
def test_redis_counts_as_the_model(shared: RedisServer) -> None:
    class Machine(_RedisMachine):
        server = shared

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Machine,
        settings=settings(
            max_examples=10,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
