"""Redis is well, and the store cannot be read for a budget that Redis does not know."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis

from headrace.gateway.accounts import (
    Budget,
    Group,
    KeyRecord,
    LimitExceededError,
    Limits,
    Parent,
    Records,
    RedisCounters,
    StoresDownError,
    Terms,
    connect,
)
from headrace.gateway.accounts.counters import Spent
from headrace.gateway.accounts.errors import StoreError
from headrace.gateway.accounts.key import secret_of
from headrace.gateway.accounts.terms import WhenDown
from tests.gateway.accounts.parts import (
    KEY,
    NOON_MS,
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


def of_a_team(server: RedisServer, store: Store, terms: Terms) -> KeptAccounts:
    """KEY and, with a budget of its own, OTHER_KEY, both of a team with these terms."""
    team = Parent("team", "red")
    own = Terms(budgets=(Budget(amount=100, window="1d"),), when_stores_are_down="open")
    records = Records(
        groups=(Group(level="team", name="red", terms=terms),),
        keys=(
            KeyRecord(id="plain", secrets=(secret_of(KEY),), parent=team),
            KeyRecord(id="of a budget", secrets=(secret_of(OTHER_KEY),), parent=team, terms=own),
        ),
    )
    counters = counters_at(server)
    counters.restore_from(store)
    return accounts_of(records, Clock(), counters=counters)


async def forget_budget(server: RedisServer) -> None:
    async with Redis(port=server.port) as client:
        assert await client.delete(BUDGET) == 1


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
    await forget_budget(server)
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


async def test_an_open_key_spends_its_budget_once_while_redis_comes_and_goes(
    server: RedisServer,
) -> None:
    store = Store()
    accounts = two_keys(server, store, "open")
    await accounts.start()
    server.kill()
    await accounts.tick()
    for _ in range(2):
        await spend(accounts, 30)
    under_way = await accounts.reserve(accounts.caller(OTHER_KEY), demand(30))
    for away in (False, True, False):
        if away:
            server.kill()
        else:
            server.start()
        await accounts.tick()
        assert accounts.describe().counters.reachable is not away
        with pytest.raises(LimitExceededError):
            await spend(accounts, 30)
    await under_way.settle(actual(30))
    with pytest.raises(LimitExceededError):
        await spend(accounts, 30)
    store.is_well = True
    await accounts.tick()
    assert await standing(accounts, "key", "of a budget") == [(90, 0)]
    await accounts.close()


async def test_an_open_key_with_limits_alone_is_served_while_redis_is_away(
    server: RedisServer,
) -> None:
    only = KeyRecord(
        id="of limits",
        secrets=(secret_of(KEY),),
        terms=Terms(limits=(Limits(rpm=100),), when_stores_are_down="open"),
    )
    accounts = accounts_of(Records(keys=(only,)), Clock(), counters=counters_at(server))
    await accounts.start()
    server.kill()
    await accounts.tick()
    assert await take(accounts, 0)
    server.start()
    await accounts.tick()
    state = accounts.describe().counters
    assert state.reachable and state.unwritten == 0
    await accounts.close()


async def test_what_redis_said_when_it_was_back_counts_in_the_next_outage(tmp_path: Path) -> None:
    """Of two gateways, one of which has an answer under way all the time."""
    mortal = RedisServer(redis_program(), tmp_path / "kept", persistent=True)
    mortal.start()
    own = Terms(budgets=(Budget(amount=100, window="1d"),), when_stores_are_down="open")
    records = Records(keys=(KeyRecord(id="k", secrets=(secret_of(KEY),), terms=own),))
    one, other = (
        accounts_of(records, Clock(), counters=counters_at(mortal), seed=seed) for seed in (1, 2)
    )
    await one.start()
    await other.start()
    try:
        mortal.kill()
        await one.tick()
        under_way = await one.reserve(one.caller(KEY), demand(1))
        assert await take(one, 9)
        mortal.start()
        await other.tick()
        assert await take(other, 80)
        await one.tick()
        assert (await standing(one, "key", "k"))[0][0] == 89
        mortal.kill()
        await one.tick()
        assert not await take(one, 80)
        await under_way.settle(actual(1))
    finally:
        mortal.kill()
        await one.close()
        await other.close()


async def test_what_waits_is_spent_for_an_open_key(server: RedisServer) -> None:
    store = Store()
    store.is_well = True
    accounts = two_keys(server, store, "open")
    await accounts.start()
    held = [await accounts.reserve(accounts.caller(OTHER_KEY), demand(30)) for _ in range(3)]
    store.is_well = False
    await forget_budget(server)
    for one in held[:2]:
        await one.settle(actual(30))
    await spend(accounts, 10)
    await held[2].settle(actual(30))
    with pytest.raises(LimitExceededError):
        await spend(accounts, 1)
    store.is_well = True
    with pytest.raises(LimitExceededError):
        await spend(accounts, 1)
    await accounts.tick()
    assert await standing(accounts, "key", "of a budget") == [(100, 0)]
    with pytest.raises(LimitExceededError):
        await spend(accounts, 1)
    await accounts.close()


async def test_what_redis_counts_meanwhile_is_spent_here_too(server: RedisServer) -> None:
    """An open key whose team has a budget that Redis knows."""
    store = Store()
    store.is_well = True
    accounts = of_a_team(server, store, Terms(budgets=(Budget(amount=100, window="1d"),)))
    await accounts.start()
    await spend(accounts, 10)
    store.is_well = False
    await forget_budget(server)
    await spend(accounts, 10)
    assert await take(accounts, 50), "the team's other key"
    with pytest.raises(LimitExceededError, match="team 'red'"):
        await spend(accounts, 40)
    await spend(accounts, 30)
    await accounts.tick()
    assert await standing(accounts, "team", "red") == [(100, 0)]
    await accounts.close()


async def test_what_an_end_needs_no_store_for_is_done_at_once(server: RedisServer) -> None:
    store = Store()
    store.is_well = True
    terms = Terms(limits=(Limits(concurrency=1),), budgets=(Budget(amount=100, window="1d"),))
    accounts = of_a_team(server, store, terms)
    await accounts.start()
    held = await accounts.reserve(accounts.caller(OTHER_KEY), demand(20))
    store.is_well = False
    await forget_budget(server)
    assert not (await held.settle(actual(10))).counted
    assert await standing(accounts, "team", "red") == [(0, 0), (10, 0)]
    assert await take(accounts, 5)

    async def told() -> list[tuple[str, int]]:
        ticked = await accounts._counters.tick(at_ms=NOON_MS)
        return [(one.meter.name, one.actual) for late in ticked for one in late.counted]

    assert await told() == [("red", 0), ("red", 10)]
    assert await told() == []
    store.is_well = True
    assert await told() == [("of a budget", 10)]
    assert await told() == []
    assert await standing(accounts, "key", "of a budget") == [(10, 0)]
    assert await standing(accounts, "team", "red") == [(0, 0), (15, 0)]
    await accounts.close()


async def test_a_tick_asks_once_for_all_that_waits(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = connect(server.url, timeout_s=5.0)
    scripts = []
    run = link.run

    async def counted(
        script: str, keys: Sequence[str], arguments: Sequence[str | int]
    ) -> Sequence[str]:
        scripts.append(script)
        return await run(script, keys, arguments)

    monkeypatch.setattr(link, "run", counted)
    store = Store()
    counters = RedisCounters(link, prefix="t")
    counters.restore_from(store)
    records = Records(
        keys=(
            KeyRecord(
                id="of a budget",
                secrets=(secret_of(OTHER_KEY),),
                terms=Terms(
                    budgets=(Budget(amount=1000, window="1d"),), when_stores_are_down="open"
                ),
            ),
        )
    )
    accounts = accounts_of(records, Clock(), counters=counters)
    await accounts.start()
    for _ in range(300):
        await spend(accounts, 1)
    for _ in range(2):
        scripts.clear()
        store.reads = 0
        await accounts.tick()
        assert accounts.describe().counters.unwritten == 300
        assert store.reads == 1
        assert len(scripts) <= 40
    store.is_well = True
    await accounts.tick()
    assert accounts.describe().counters.unwritten == 0
    assert await standing(accounts, "key", "of a budget") == [(300, 0)]
    await accounts.close()
