"""Counters in a Redis that is full and forgets what was not asked for in a while."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis

from headrace.gateway.accounts import (
    Accounts,
    RedisCounters,
    SqliteStore,
    StoresDownError,
    connect,
)
from headrace.gateway.accounts.counters import Spent
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
    random_bytes,
    standing,
    take,
)
from tests.gateway.accounts.redis_server import RedisServer, redis_program

# A Redis of 6 MB holds some fifty of them, and evicts what is about the oldest.
_ANSWER_BYTES = 100_000
_MOST_ANSWERS = 5_000


@pytest.fixture
def full(tmp_path: Path) -> Iterator[RedisServer]:
    """As a cache of answers would have it."""
    options = ("--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru")
    server = RedisServer(redis_program(), tmp_path / "redis", options=options)
    server.start()
    yield server
    server.kill()


async def evict(server: RedisServer) -> None:
    """Fill it with what a cache keeps, until no meter is left."""
    async with Redis(port=server.port, decode_responses=True) as client:
        for number in range(_MOST_ANSWERS):
            await client.set(f"cache:{number}", "x" * _ANSWER_BYTES)
            if number % 50 == 0 and not await client.keys("{t}:m:*"):
                return
    raise AssertionError("the meters are there yet")


async def evict_alone(server: RedisServer, meter: str) -> None:
    """The records of reservations are younger than a meter may be, and stay then."""
    async with Redis(port=server.port, decode_responses=True) as client:
        assert await client.delete(meter) == 1


async def started(server: RedisServer, folder: Path, clock: Clock) -> Accounts:
    store = await SqliteStore.open(
        folder / "accounts.db", now_ns=clock, random_bytes=random_bytes(9)
    )
    accounts = accounts_of(
        hierarchy(key=budget(100), team=limits(concurrency=2)),
        clock,
        counters=counters_at(server),
        store=store,
    )
    await accounts.start()
    return accounts


async def test_a_spent_budget_stays_spent(full: RedisServer, tmp_path: Path) -> None:
    accounts = await started(full, tmp_path, Clock())
    for _ in range(9):
        assert await take(accounts, 10)
    await accounts.tick()  # saved
    assert await take(accounts, 5)  # not yet
    await evict(full)
    assert await standing(accounts, "key", "k") == [(95, 0)]
    assert not await take(accounts, 10)
    assert await take(accounts, 5)
    assert not await take(accounts, 1)
    assert accounts.describe().counters.reachable
    await accounts.close()


async def test_what_is_settled_meanwhile_counts_once(full: RedisServer, tmp_path: Path) -> None:
    accounts = await started(full, tmp_path, Clock())
    assert await take(accounts, 40)
    await accounts.tick()
    held = await accounts.reserve(accounts.caller(KEY), demand(50))
    await evict(full)
    await held.settle(actual(30))
    await accounts.tick()
    assert await standing(accounts, "key", "k") == [(70, 0)]
    await accounts.close()


async def test_what_is_given_back_after_it_makes_no_more_room(
    full: RedisServer, tmp_path: Path
) -> None:
    accounts = await started(full, tmp_path, Clock())
    before = [await accounts.reserve(accounts.caller(KEY), demand(1)) for _ in range(2)]
    await evict_alone(full, "{t}:m:team|red|concurrency|total|rolling|*")
    after = await accounts.reserve(accounts.caller(KEY), demand(1))
    for reservation in (*before, after):
        await reservation.release()
    assert await standing(accounts, "team", "red") == [(0, 0)]
    await accounts.close()


async def test_what_running_requests_hold_is_held_again(full: RedisServer, tmp_path: Path) -> None:
    accounts = await started(full, tmp_path, Clock())
    held = await accounts.reserve(accounts.caller(KEY), demand(50))
    (meter,) = [one for one in accounts.caller(KEY).meters if one.is_budget]
    await evict_alone(full, f"{{t}}:m:{meter.id}")
    assert not await take(accounts, 60)
    await held.settle(actual(30))
    assert await standing(accounts, "key", "k") == [(30, 0)]
    await accounts.close()


async def test_one_that_dies_while_it_is_told_costs_one_timeout(full: RedisServer) -> None:
    timeout_s = 0.2
    counters = RedisCounters(connect(full.url, timeout_s=timeout_s), prefix="t")
    accounts = accounts_of(hierarchy(key=budget(100)), counters=counters)
    with ExitStack() as until_the_end:

        async def spent(of: Collection[str]) -> list[Spent]:
            await asyncio.sleep(0.2)  # by then all know that there is something to tell
            until_the_end.enter_context(full.paused())
            return []

        counters.restore_from(spent)
        began_s = time.monotonic()
        told = await asyncio.gather(
            *(accounts.reserve(accounts.caller(KEY), demand(1)) for _ in range(30)),
            return_exceptions=True,
        )
        assert {type(one) for one in told} == {StoresDownError}
        assert time.monotonic() - began_s < 15 * timeout_s
    await counters.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "noeviction"])
async def test_it_is_warned_of_at_the_start(
    full: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    async with Redis(port=full.port) as client:
        await client.config_set("maxmemory-policy", policy)
    accounts = await started(full, tmp_path, Clock())
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    if policy == "noeviction":
        assert warnings == []
    else:
        (warning,) = warnings
        assert policy in warning and "set noeviction" in warning
    await accounts.close()
