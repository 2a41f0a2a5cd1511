"""Redis is well, and the store cannot be read for a budget that Redis does not know."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from headrace.gateway.accounts import Budget, KeyRecord, Limits, Records, StoresDownError, Terms
from headrace.gateway.accounts.counters import Spent
from headrace.gateway.accounts.errors import StoreError
from headrace.gateway.accounts.key import secret_of
from headrace.gateway.accounts.terms import WhenDown
from tests.gateway.accounts.parts import (
    KEY,
    OTHER_KEY,
    Clock,
    KeptAccounts,
    accounts_of,
    actual,
    counters_at,
    demand,
    standing,
    take,
)
from tests.gateway.accounts.redis_server import RedisServer, redis_program

BUDGET = "{t}:m:key|of a budget|nusd|1d|rolling|*"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(redis_program(), tmp_path / "redis")
    server.start()
    yield server
    server.kill()


class Store:
    """What was spent, while it can be read."""

    def __init__(self) -> None:
        self.is_well = False
        self.reads = 0

    async def __call__(self, of: Collection[str]) -> list[Spent]:
        self.reads += 1
        if not self.is_well:
            raise StoreError("accounts.db: disk I/O error")
        return []


def two_keys(server: RedisServer, store: Store, when_down: WhenDown) -> KeptAccounts:
    """KEY, with limits alone, and OTHER_KEY, with a budget."""
    records = Records(
        keys=(
            KeyRecord(
                id="of limits",
                secrets=(secret_of(KEY),),
                terms=Terms(limits=(Limits(rpm=100),), when_stores_are_down="closed"),
            ),
            KeyRecord(
                id="of a budget",
                secrets=(secret_of(OTHER_KEY),),
                terms=Terms(
                    budgets=(Budget(amount=100, window="1d"),), when_stores_are_down=when_down
                ),
            ),
        )
    )
    counters = counters_at(server)
    counters.restore_from(store)
    return accounts_of(records, Clock(), counters=counters)


async def spend(accounts: KeptAccounts, cost: int) -> None:
    reservation = await accounts.reserve(accounts.caller(OTHER_KEY), demand(cost))
    await reservation.settle(actual(cost))


async def test_the_key_of_that_budget_is_refused_and_no_other(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    accounts = two_keys(server, store, "closed")
    await accounts.start()
    for _ in range(2):
        with pytest.raises(StoresDownError, match="cannot be read from the store"):
            await spend(accounts, 10)
        assert await take(accounts, 0)
        assert accounts.describe().counters.reachable
    assert await standing(accounts, "key", "of a budget") == [(0, 0)], "a page asks for it"
    assert await standing(accounts, "key", "of limits") == [(2, 0)]
    assert accounts.describe().counters.reachable
    assert [r.levelno for r in caplog.records] == [logging.ERROR], "it is logged once"

    store.is_well = True
    await spend(accounts, 10)
    assert await standing(accounts, "key", "of a budget") == [(10, 0)]
    assert len(caplog.records) == 2
    await accounts.close()


async def test_an_open_key_is_counted_here_and_written_when_the_store_is_back(
    server: RedisServer,
) -> None:
    store = Store()
    accounts = two_keys(server, store, "open")
    await accounts.start()
    for _ in range(3):
        await spend(accounts, 30)
        await accounts.tick()
    with pytest.raises(Exception, match="budget of"):
        await spend(accounts, 30)
    assert accounts.describe().counters.unwritten == 3
    assert accounts.describe().counters.reachable

    store.is_well = True
    await accounts.tick()
    assert accounts.describe().counters.unwritten == 0
    assert await standing(accounts, "key", "of a budget") == [(90, 0)]
    await accounts.close()


async def test_what_is_settled_meanwhile_waits_and_holds_nobody_up(server: RedisServer) -> None:
    store = Store()
    store.is_well = True
    accounts = two_keys(server, store, "closed")
    await accounts.start()
    held = [await accounts.reserve(accounts.caller(OTHER_KEY), demand(1)) for _ in range(40)]
    store.is_well = False
    async with Redis(port=server.port) as client:
        assert await client.delete(BUDGET) == 1
    for one in held:
        await one.settle(actual(1))
    await accounts.tick()
    assert accounts.describe().counters.unwritten == 40
    assert accounts.describe().counters.reachable and await take(accounts, 0)
    store.is_well = True
    await accounts.tick()
    assert accounts.describe().counters.unwritten == 0
    assert await standing(accounts, "key", "of a budget") == [(40, 0)]
    await accounts.close()
