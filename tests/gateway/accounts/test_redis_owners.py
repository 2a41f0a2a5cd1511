"""What a process that has ended holds in a real Redis is given back before its lease ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.gateway.accounts import RedisCounters, connect
from tests.gateway.accounts.parts import (
    KEY,
    accounts_of,
    actual,
    budget,
    demand,
    hierarchy,
    limits,
    standing,
)
from tests.gateway.accounts.redis_server import RedisServer, redis_program

TIMEOUT_S = 5.0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(redis_program(), tmp_path / "redis", persistent=True)
    server.start()
    yield server
    server.kill()


def counters_at(server: RedisServer) -> RedisCounters:
    return RedisCounters(connect(server.url, timeout_s=TIMEOUT_S))


async def test_it_is_given_back_at_a_word(redis: RedisServer) -> None:
    records = hierarchy(key=budget(1_000_000), team=limits(concurrency=500))
    dead = accounts_of(records, counters=counters_at(redis))
    alive = accounts_of(records, counters=counters_at(redis), seed=1)
    other = await alive.reserve(alive.caller(KEY), demand(7))
    # More than one step of the scan finds.
    left = [await dead.reserve(dead.caller(KEY), demand(80)) for _ in range(450)]
    assert await alive.give_back_of(dead.owner) == 450
    assert await standing(alive, "key", "k") == [(0, 7)]
    assert await standing(alive, "team", "red") == [(0, 1)]
    # What it had sent, and Redis does only now: a settlement counts, a reservation is found later.
    await left[0].settle(actual(70))
    unsettled = await dead.reserve(dead.caller(KEY), demand(80))
    assert await standing(alive, "key", "k") == [(70, 87)]
    await alive.tick()
    assert await standing(alive, "key", "k") == [(70, 7)]
    await other.release()
    assert await standing(alive, "team", "red") == [(0, 0)]
    for one in (*left[1:], unsettled):
        await one.release()
    assert await standing(alive, "key", "k") == [(70, 0)]
    await dead.close()
    await alive.close()


async def test_it_is_given_back_once_redis_is_there_again(redis: RedisServer) -> None:
    records = hierarchy(team=limits(concurrency=1))
    dead = accounts_of(records, counters=counters_at(redis))
    alive = accounts_of(records, counters=counters_at(redis), seed=1)
    held = await dead.reserve(dead.caller(KEY), demand(1))
    redis.kill()
    assert await alive.give_back_of(dead.owner) == 0
    redis.start()
    await alive.tick()
    assert await standing(alive, "team", "red") == [(0, 0)]
    await held.release()
    await dead.close()
    await alive.close()
