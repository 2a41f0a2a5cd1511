"""Counters in a Redis that dies, hangs or is not there: nothing is lost, and nothing doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.gateway.accounts import (
    Accounts,
    RedisCounters,
    SqliteStore,
    StoresDownError,
    Terms,
    connect,
)
from tests.gateway.accounts.parts import (
    KEY,
    Clock,
    accounts_of,
    actual,
    budget,
    counters_at,
    demand,
    hierarchy,
    random_bytes,
    standing,
    take,
)
from tests.gateway.accounts.redis_server import RedisServer, redis_program
from tests.waiting import until

OPEN = Terms(when_stores_are_down="open")


@pytest.fixture(params=[False, True], ids=["forgets", "persists"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    """One that is killed, without and with a memory."""
    server = RedisServer(redis_program(), tmp_path / "redis", persistent=request.param)
    server.start()
    yield server
    server.kill()


async def test_closed_refuses_and_open_goes_on_while_it_is_away(
    mortal: RedisServer, tmp_path: Path
) -> None:
    """Killed and started again: what was spent before, meanwhile and after is there, once."""
    clock = Clock()
    store = await SqliteStore.open(
        tmp_path / "accounts.db", now_ns=clock, random_bytes=random_bytes(9)
    )

    def worker(seed: int, **terms: Terms) -> Accounts:
        counters = counters_at(mortal)
        return accounts_of(
            hierarchy(team=budget(1000, "1M", calendar=True), **terms),
            clock,
            counters=counters,
            store=store,
            seed=seed,
        )

    accounts, strict = worker(1, key=OPEN), worker(2)
    await accounts.start()
    await strict.start()
    for _ in range(5):
        assert await take(accounts, 10)
    held = await accounts.reserve(accounts.caller(KEY), demand(100))
    kept = await accounts.reserve(accounts.caller(KEY), demand(100))
    await accounts.tick()  # 50 are in the store

    mortal.kill()
    await held.settle(actual(60))
    with pytest.raises(StoresDownError, match="closed") as caught:
        await strict.reserve(strict.caller(KEY), demand(1))
    assert caught.value.retry_after_s > 0
    for _ in range(3):
        assert await take(accounts, 10)
    assert not await take(accounts, 1000)
    over = await accounts.reserve(accounts.caller(KEY), demand(20))
    await accounts.tick()
    state = accounts.describe().counters
    assert not state.reachable and state.unwritten == 4 and state.problem
    # What Redis said last, and what was settled since.
    assert (await standing(accounts, "team", "red"))[0][0] == 50 + 60 + 30

    mortal.start()
    await strict.tick()
    await accounts.tick()
    assert accounts.describe().counters.reachable
    assert accounts.describe().counters.unwritten == 0
    await over.settle(actual(20))
    await kept.settle(actual(5))
    await accounts.tick()
    assert await take(strict, 3)
    total = 50 + 60 + 30 + 20 + 5 + 3
    assert await standing(strict, "team", "red") == [(total, 0)]
    await accounts.tick()
    await strict.tick()
    assert sum(spent.amount for spent in await store.spent(at_ms=clock.ms)) == total
    await accounts._counters.close()
    await strict.close()


@pytest.mark.process
async def test_killed_under_load_nothing_is_lost_or_doubled(
    mortal: RedisServer, tmp_path: Path
) -> None:
    clock = Clock()
    store = await SqliteStore.open(
        tmp_path / "accounts.db", now_ns=clock, random_bytes=random_bytes(9)
    )
    counters = counters_at(mortal)
    accounts = accounts_of(
        hierarchy(team=budget(10**9, "1M", calendar=True), key=OPEN),
        clock,
        counters=counters,
        store=store,
    )
    await accounts.start()
    settled = 0
    stop = asyncio.Event()

    async def ask() -> None:
        nonlocal settled
        while not stop.is_set():
            reservation = await accounts.reserve(accounts.caller(KEY), demand(10))
            await asyncio.sleep(0)
            assert (await reservation.settle(actual(7))).first
            settled += 7
            await asyncio.sleep(0.001)

    async def tick() -> None:
        while not stop.is_set():
            await accounts.tick()
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(ask()) for _ in range(8)] + [asyncio.create_task(tick())]

    async def settles(requests: int) -> None:
        wanted = settled + 7 * requests
        await until(lambda: settled >= wanted, lambda: f"{settled} of {wanted} settled")

    for _ in range(3):
        await settles(200)
        mortal.kill()
        await settles(50)
        await asyncio.to_thread(mortal.start)
    await settles(200)
    stop.set()
    await asyncio.gather(*tasks)
    await accounts.tick()
    await accounts.tick()
    assert settled > 1000
    assert accounts.describe().counters.unwritten == 0
    assert sum(spent.amount for spent in await store.spent(at_ms=clock.ms)) == settled
    assert await standing(accounts, "team", "red") == [(settled, 0)]
    await accounts.close()


async def test_a_restart_that_nobody_saw_costs_no_request(mortal: RedisServer) -> None:
    accounts = accounts_of(hierarchy(team=budget(100)), counters=counters_at(mortal))
    assert await take(accounts, 1)
    mortal.kill()
    mortal.start()
    assert await take(accounts, 1)
    assert accounts.describe().counters.reachable
    await accounts.close()


async def test_as_many_as_may_wait_and_no_more(mortal: RedisServer) -> None:
    accounts = accounts_of(
        hierarchy(team=budget(1000), key=OPEN), counters=counters_at(mortal, most_unwritten=5)
    )
    assert await take(accounts, 1)
    mortal.kill()
    passed = 0
    with pytest.raises(StoresDownError, match="5 settlements are already waiting"):
        for _ in range(10):
            passed += await take(accounts, 1)
    assert passed in (4, 5)
    mortal.start()
    await accounts.tick()
    assert await take(accounts, 1)
    await accounts._counters.close()


async def test_one_that_is_not_there_costs_one_timeout() -> None:
    redis_program()
    accounts = accounts_of(
        hierarchy(team=budget(10, unit="requests"), key=OPEN),
        counters=RedisCounters(connect("redis://127.0.0.1:1/0")),
    )
    await accounts.start()
    assert sum([await take(accounts, 0) for _ in range(20)]) == 10
    assert not accounts.describe().counters.reachable
    await accounts._counters.close()


async def test_one_that_hangs_is_given_up_in_time() -> None:
    redis_program()
    server = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    accounts = accounts_of(
        hierarchy(team=budget(10)),
        counters=RedisCounters(connect(f"redis://127.0.0.1:{port}/0", timeout_s=0.1)),
    )
    async with asyncio.timeout(10):
        with pytest.raises(StoresDownError):
            await accounts.reserve(accounts.caller(KEY), demand(1))
    await accounts._counters.close()
    server.close()
