"""What these tests share: a clock that is set, keys that are known, accounts over any counters."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headrace.gateway.accounts import (
    Accounts,
    Actual,
    Alert,
    Budget,
    Counters,
    Demand,
    Group,
    KeyRecord,
    LimitExceededError,
    Limits,
    MemoryCounters,
    Parent,
    Records,
    RedisCounters,
    Reservation,
    Terms,
    connect,
    secret_of,
)
from headrace.gateway.accounts.terms import NO_TERMS
from tests.gateway.accounts.redis_server import RedisServer

# Tuesday 2026-03-10, 12:00 UTC.
NOON_MS = 1_773_144_000_000
KEY = "hr-test-key-of-acme-red-ann-0000000000000"
OTHER_KEY = "hr-test-key-of-nobody-000000000000000000"


class Clock:
    """Nanoseconds since 1970, as they are set."""

    def __init__(self, ms: int = NOON_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms * 1_000_000 + 999_999

    def step(self, ms: int) -> None:
        self.ms += ms


class KeptAccounts(Accounts):
    """With a place for reservations, which are given back when nobody keeps them."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.kept: list[Reservation] = []


def random_bytes(seed: int = 0) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


def key_record(**fields: Any) -> KeyRecord:
    """A key that KEY opens."""
    return KeyRecord(**{"id": "k", "secrets": (secret_of(KEY),), **fields})


def hierarchy(
    *,
    organisation: Terms = NO_TERMS,
    team: Terms = NO_TERMS,
    user: Terms = NO_TERMS,
    key: Terms = NO_TERMS,
) -> Records:
    """acme, its team red, red's user ann, whose key is KEY."""
    return Records(
        (
            Group(level="organisation", name="acme", terms=organisation),
            Group(level="team", name="red", parent=Parent("organisation", "acme"), terms=team),
            Group(level="user", name="ann", parent=Parent("team", "red"), terms=user),
        ),
        (key_record(parent=Parent("user", "ann"), terms=key),),
    )


def accounts_of(
    records: Records,
    clock: Clock | None = None,
    *,
    counters: Counters | None = None,
    seed: int = 0,
    alerts: list[Alert] | None = None,
    **more: Any,
) -> KeptAccounts:
    return KeptAccounts(
        MemoryCounters() if counters is None else counters,
        now_ns=clock or Clock(),
        random_bytes=random_bytes(seed),
        configured=records,
        on_alert=None if alerts is None else alerts.append,
        **more,
    )


def budget(amount: int, window: str = "1d", **fields: Any) -> Terms:
    """Terms of one budget."""
    return Terms(budgets=(Budget(amount=amount, window=window, **fields),))  # type: ignore[arg-type]


def limits(**fields: Any) -> Terms:
    """Terms of one set of limits."""
    return Terms(limits=(Limits(**fields),))


def demand(cost: int | None = 0, *, model: str = "m", tokens: int = 0, **fields: Any) -> Demand:
    return Demand(model=model, most_cost_nusd=cost, most_output_tokens=tokens, **fields)


def actual(cost: int | None = 0, *, tokens: int = 0, **fields: Any) -> Actual:
    return Actual(cost_nusd=cost, output_tokens=tokens, **fields)


def counters_at(server: RedisServer, prefix: str = "t", **more: Any) -> RedisCounters:
    """Counters in a Redis; names of their own by the prefix."""
    return RedisCounters(connect(server.url, timeout_s=5.0), prefix=prefix, **more)


async def take(accounts: Accounts, cost: int) -> bool:
    """Reserve and settle so much; whether it passed."""
    try:
        reservation = await accounts.reserve(accounts.caller(KEY), demand(cost))
    except LimitExceededError:
        return False
    assert (await reservation.settle(actual(cost))).first
    return True


async def standing(accounts: Accounts, level: str, name: str) -> list[tuple[int, int]]:
    """Used and held of each limit and budget of a level."""
    readings = await accounts.readings(level, name)  # type: ignore[arg-type]
    return [(reading.used, reading.held) for reading in readings]
