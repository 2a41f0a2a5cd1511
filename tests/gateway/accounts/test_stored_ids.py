"""Ids of what providers store, known to the key that was told them, wherever limits are counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.asyncio import Redis

from headrace.gateway.accounts import MemoryCounters, connect
from headrace.gateway.accounts.redis_counters import RedisCounters
from headrace.gateway.accounts.remembered import Remembered
from headrace.gateway.accounts.stored_ids import StoredIds
from tests.gateway.accounts.parts import NOON_MS, counters_at
from tests.gateway.accounts.redis_server import RedisServer, redis_program

DAY_S = 86_400


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    found = RedisServer(redis_program(), tmp_path_factory.mktemp("redis"))
    found.start()
    yield found
    found.kill()


def now_s() -> float:
    return NOON_MS / 1000


async def test_an_id_is_of_the_key_that_was_told_it_for_thirty_days() -> None:
    at_s = now_s()
    ids = StoredIds(MemoryCounters(), lambda: at_s)
    await ids.tell("a|b", "resp_1")
    assert await ids.was_told("a|b", "resp_1")
    assert not await ids.was_told("a", "b|resp_1")
    assert not await ids.was_told("a|b", "resp_2")
    at_s += 30 * DAY_S - 1
    assert await ids.was_told("a|b", "resp_1")
    at_s += 1
    assert not await ids.was_told("a|b", "resp_1")


def test_the_oldest_is_forgotten_where_there_are_too_many() -> None:
    marks = Remembered(most=2)
    for mark in ("a", "b", "a", "c"):
        marks.add(mark, until_ms=10)
    assert [marks.has(mark, at_ms=9) for mark in "abc"] == [True, False, True]


async def test_gateways_that_count_in_one_redis_know_it_together(server: RedisServer) -> None:
    here, there = counters_at(server), counters_at(server)
    await StoredIds(here, now_s).tell("alice", "resp_1")
    assert await StoredIds(there, now_s).was_told("alice", "resp_1")
    assert not await StoredIds(there, now_s).was_told("bob", "resp_1")
    async with Redis(port=server.port, decode_responses=True) as client:
        (name,) = await client.keys("*")
        assert "alice" not in name and "resp_1" not in name
        assert 29 * DAY_S < await client.ttl(name) <= 30 * DAY_S
    await here.close()
    await there.close()


async def test_while_redis_is_away_a_process_knows_what_it_told_itself() -> None:
    redis_program()
    counters = RedisCounters(connect("redis://127.0.0.1:1/0"))
    ids = StoredIds(counters, now_s)
    await ids.tell("alice", "resp_1")
    assert await ids.was_told("alice", "resp_1")
    assert not await ids.was_told("alice", "resp_2")
    assert not counters.describe().reachable
    await counters.close()
