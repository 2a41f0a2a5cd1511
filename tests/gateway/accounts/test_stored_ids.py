"""Ids of what providers store, known to the key that was told them, wherever limits are counted."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from redis.asyncio import Redis

from headrace.gateway.accounts import (
    Accounts,
    MemoryCounters,
    SqliteStore,
    StoreError,
    StoresDownError,
    connect,
)
from headrace.gateway.accounts.counters import Mark
from headrace.gateway.accounts.redis_counters import RedisCounters
from headrace.gateway.accounts.redis_marks import RedisMarks
from headrace.gateway.accounts.remembered import Remembered
from headrace.gateway.accounts.sqlite_rows import SqliteRows
from headrace.gateway.accounts.store import AccountStore
from headrace.gateway.accounts.stored_ids import StoredIds
from tests.gateway.accounts.parts import NOON_MS, Clock, counters_at, random_bytes
from tests.gateway.accounts.redis_server import RedisServer, redis_program

DAY_MS = 86_400_000


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    found = RedisServer(redis_program(), tmp_path_factory.mktemp("redis"))
    found.start()
    yield found
    found.kill()


def now_ms() -> int:
    return NOON_MS


async def was_told(ids: StoredIds, key_id: str, stored_id: str) -> bool:
    return await ids.told(key_id, [stored_id, "resp_never"]) == {stored_id}


async def store_at(path: Path, clock: Clock) -> SqliteStore:
    return await SqliteStore.open(path, now_ns=clock, random_bytes=random_bytes())


def marks(owner: str, *ids: str, until_ms: int = NOON_MS + 10) -> list[Mark]:
    return [Mark(owner, id, until_ms + at) for at, id in enumerate(ids)]


async def test_an_id_is_of_the_key_that_was_told_it_for_thirty_days() -> None:
    at_ms = NOON_MS
    ids = StoredIds(MemoryCounters(), lambda: at_ms)
    await ids.tell("a|b", ["resp_1", "msg_1"])
    assert await ids.told("a|b", ["resp_1", "msg_1", "resp_2"]) == {"resp_1", "msg_1"}
    assert await ids.told("a", ["b|resp_1"]) == set()
    at_ms += 30 * DAY_MS - 1
    assert await was_told(ids, "a|b", "resp_1")
    at_ms += 1
    assert not await was_told(ids, "a|b", "resp_1")


async def test_of_others_is_what_another_key_was_told() -> None:
    ids = StoredIds(MemoryCounters(), now_ms)
    await ids.tell("a", ["resp_1"], with_owner=["cntr_1"])
    assert await ids.told("a", ["cntr_1"]) == {"cntr_1"}
    assert await ids.of_others("a", ["cntr_1", "cntr_2"]) == set()
    assert await ids.of_others("b", ["cntr_1", "cntr_2", "resp_1"]) == {"cntr_1"}


def test_the_oldest_is_forgotten_where_there_are_too_many() -> None:
    remembered = Remembered(most=2)
    for mark in ("a", "b", "a", "c"):
        remembered.add(marks("o", mark))
    assert remembered.known("o", "abc", NOON_MS) == {"a", "c"}
    assert remembered.known("p", "abc", NOON_MS) == set()
    old = remembered.oldest(2)
    remembered.add([old[0]._replace(until_ms=NOON_MS + 99)])
    remembered.remove(old)
    assert remembered.known("o", "abc", NOON_MS) == {"a"}, "what came again stays"
    remembered.remove(remembered.oldest(2))
    assert len(remembered) == 0 and remembered.oldest(2) == []


def test_who_has_most_is_who_forgets() -> None:
    remembered = Remembered(most=6)
    remembered.add(marks("few", "a", "b"))
    remembered.add(marks("flood", *"123456789"))
    assert remembered.known("few", "ab", NOON_MS) == {"a", "b"}
    assert remembered.known("flood", "123456789", NOON_MS) == set("6789")
    remembered.add(marks("third", "x", "y", "z"))
    assert remembered.known("few", "ab", NOON_MS) == {"a", "b"}
    assert len(remembered) == 6


def test_it_counts_what_is_there() -> None:
    """Whatever is added, forgotten and removed, of many owners."""
    chance = random.Random(7)
    remembered = Remembered(most=20)
    for _ in range(2000):
        owner = chance.choice("abcdef")
        if chance.random() < 0.8:
            remembered.add(marks(owner, *(str(chance.randrange(12)) for _ in range(3))))
        else:
            remembered.remove(chance.sample(remembered.oldest(20), min(4, len(remembered))))
        there = remembered.oldest(100)
        assert len(there) == len(set(there)) == len(remembered) <= 20
        for mark in there:
            assert remembered.known(mark.owner, [mark.id], NOON_MS)


async def test_one_key_does_not_make_others_ids_unknown() -> None:
    counters = MemoryCounters()
    counters._remembered = Remembered(most=10)
    ids = StoredIds(counters, now_ms)
    await ids.tell("alice", ["resp_alice"])
    await ids.tell("bob", [f"msg_{number}" for number in range(11)])
    assert await was_told(ids, "alice", "resp_alice")
    assert not await was_told(ids, "bob", "msg_0")


async def test_gateways_that_count_in_one_redis_know_it_together(server: RedisServer) -> None:
    here, there = counters_at(server), counters_at(server)
    await StoredIds(here, now_ms).tell("alice", ["resp_1", "msg_1"])
    await StoredIds(here, now_ms).tell("alice", ["resp_2"])
    assert await was_told(StoredIds(there, now_ms), "alice", "resp_1")
    assert not await was_told(StoredIds(there, now_ms), "bob", "resp_1")
    async with Redis(port=server.port, decode_responses=True) as client:
        (name,) = await client.keys("*")  # one for each key of the gateway
        told = str((name, await client.zrange(name, 0, -1)))
        assert "alice" not in told and "resp_1" not in told
        assert 29 * DAY_MS < await client.pttl(name) <= 30 * DAY_MS
    await here.close()
    await there.close()


async def test_redis_keeps_the_newest_of_each_key(server: RedisServer) -> None:
    link = connect(server.url, timeout_s=5.0)
    kept = RedisMarks(link, "{t}:", most_of_owner=2)
    # Redis forgets by its own clock, which runs while the test does.
    first_ms = NOON_MS + 60_000
    first = marks("o", "a", "b", "c", until_ms=first_ms) + marks("p", "d", until_ms=first_ms)
    await kept.add(first, NOON_MS)
    assert await kept.known("o", ["a", "b", "c", "d"], NOON_MS) == {"b", "c"}
    assert await kept.known("p", ["d"], NOON_MS) == {"d"}
    await kept.add(marks("o", "e", until_ms=first_ms + 60_000), first_ms + 12)
    assert await kept.known("o", ["b", "c", "e"], first_ms + 12) == {"e"}
    async with Redis(port=server.port) as client:
        assert await client.zcard("{t}:i:o") == 1, "those that have ended are gone"
    await link.close()


async def test_what_was_told_while_redis_was_away_it_is_told_afterwards(
    server: RedisServer,
) -> None:
    here, there = counters_at(server), counters_at(server)
    ids, elsewhere = StoredIds(here, now_ms), StoredIds(there, now_ms)
    server.kill()
    await ids.tell("alice", ["resp_1"])
    assert await ids.told("alice", ["resp_1"]) == {"resp_1"}
    with pytest.raises(StoresDownError) as raised:
        await elsewhere.told("alice", ["resp_1"])
    assert raised.value.retry_after_s > 0
    server.start()
    for counters in (here, there):
        await counters.tick(at_ms=NOON_MS)
    assert await was_told(elsewhere, "alice", "resp_1")
    assert len(here._marks.waiting) == 0
    await here.close()
    await there.close()


async def test_the_store_knows_it_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "accounts.db"

    async def started() -> Accounts:
        accounts = Accounts(
            MemoryCounters(),
            now_ns=clock,
            random_bytes=random_bytes(),
            store=await store_at(path, clock),
        )
        await accounts.start()
        return accounts

    before = await started()
    await before.stored_ids.tell("alice", ["resp_1", "msg_1"])
    await before.close()
    after = await started()
    assert await after.stored_ids.told("alice", ["resp_1", "msg_1"]) == {"resp_1", "msg_1"}
    assert not await was_told(after.stored_ids, "bob", "resp_1")
    clock.step(30 * DAY_MS)
    assert not await was_told(after.stored_ids, "alice", "resp_1")
    await after.stored_ids.tell("bob", ["resp_2"])
    await after.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM marks").fetchone() == (1,)
    connection.close()


async def test_the_store_is_asked_while_redis_is_away(tmp_path: Path) -> None:
    redis_program()
    clock = Clock()
    store = await store_at(tmp_path / "accounts.db", clock)
    here, there = (RedisCounters(connect("redis://127.0.0.1:1/0")) for _ in range(2))
    ids, elsewhere = StoredIds(here, now_ms, store), StoredIds(there, now_ms, store)
    await ids.tell("alice", ["resp_1"])
    with pytest.raises(StoresDownError):
        await elsewhere.told("alice", ["resp_1"])
    await ids.save()
    assert await elsewhere.told("alice", ["resp_1"]) == {"resp_1"}
    with pytest.raises(StoresDownError):
        await elsewhere.told("alice", ["resp_1", "resp_2"])
    await store.close()
    await here.close()
    await there.close()


async def test_what_cannot_be_written_waits(tmp_path: Path) -> None:
    clock = Clock()
    store = await store_at(tmp_path / "accounts.db", clock)
    ids = StoredIds(MemoryCounters(), now_ms, store)
    await store.close()
    await ids.tell("alice", ["resp_1"])
    await ids.save()
    assert ids.problem is not None and "closed" in ids.problem
    with pytest.raises(StoresDownError) as raised:
        await ids.told("alice", ["resp_1", "resp_2"])
    assert str(tmp_path) not in str(raised.value)
    assert await ids.told("alice", ["resp_1"]) == {"resp_1"}


class Locked:
    """A store of marks that another process locks at times."""

    def __init__(self) -> None:
        self.reads = self.writes = True

    async def marks(self, ids: Sequence[str], *, at_ms: int) -> frozenset[str]:
        if not self.reads:
            raise StoreError("gateway.db: database is locked")
        return frozenset()

    async def add_marks(self, marks: Sequence[Mark]) -> None:
        if not self.writes:
            raise StoreError("gateway.db: disk is full")


async def test_a_fault_that_is_over_is_told_no_more(caplog: pytest.LogCaptureFixture) -> None:
    store = Locked()
    ids = StoredIds(MemoryCounters(), now_ms, cast(AccountStore, store))
    store.reads = False
    for _ in range(2):
        with pytest.raises(StoresDownError):
            await ids.told("alice", ["resp_1"])
        await ids.save()
        assert ids.problem is not None and "locked" in ids.problem
    store.reads = True
    assert await ids.told("alice", ["resp_1"]) == set()
    assert ids.problem is None
    store.reads = False
    with pytest.raises(StoresDownError):
        await ids.told("alice", ["resp_1"])
    assert len(caplog.records) == 2, "once for each time"
    store.reads = True
    await ids.save()
    assert ids.problem is None, "seen also where nobody asks again"

    store.writes = False
    await ids.tell("alice", ["resp_1"])
    await ids.save()
    await ids.told("alice", ["resp_2"])
    assert ids.problem is not None and "full" in ids.problem, "what waits waits yet"
    store.writes = True
    await ids.save()
    assert ids.problem is None


def test_the_store_keeps_the_newest_of_each_key(tmp_path: Path) -> None:
    rows = SqliteRows(tmp_path / "accounts.db", lambda parent: False)
    rows.open()
    for mark in marks("o", "a", "b", "c") + marks("p", "d"):
        rows.add_marks([mark], NOON_MS, most_of_owner=2)
    assert rows.marks(["a", "b", "c", "d"], NOON_MS) == {"b", "c", "d"}
    rows.close()


def test_the_store_prunes_a_key_that_has_grown_and_not_each_time(tmp_path: Path) -> None:
    rows = SqliteRows(tmp_path / "accounts.db", lambda parent: False)
    rows.open()
    statements: list[str] = []
    rows._connection.set_trace_callback(statements.append)
    ids = [f"{number:04}" for number in range(1000)]
    for number, id in enumerate(ids):
        one = marks("o", id, until_ms=NOON_MS + 10 + number)
        rows.add_marks(one, NOON_MS, most_of_owner=500)
    assert sum("DELETE FROM marks WHERE owner" in one for one in statements) < 1000 / 5
    kept = rows.marks(ids, NOON_MS)
    assert kept >= set(ids[500:]) and len(kept) <= 505
    rows.close()


async def test_a_file_of_before_there_were_any_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "accounts.db"
    await (await store_at(path, Clock())).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE marks")
    connection.close()
    store = await store_at(path, Clock())
    await store.add_marks(marks("o", "a"))
    assert await store.marks(["a", "b"], at_ms=NOON_MS) == {"a"}
    await store.close()
