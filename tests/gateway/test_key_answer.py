"""What a client is told of its own key."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from headrace.gateway.accounts import (
    Accounts,
    Actual,
    Budget,
    Demand,
    Group,
    KeyRecord,
    Limits,
    MemoryCounters,
    Parent,
    Records,
    Terms,
    secret_of,
)
from tests.gateway.harness import Told, ask, gateway

SETTINGS: dict[str, Any] = {
    "providers": {"a": {"base_url": "http://127.0.0.1:9/v1", "dialect": "openai-chat"}},
    "models": {"chat": ["a/m"]},
    "access": {"master_key": "env:MASTER"},
}
KEY, OTHER = "hr-key-of-red-0000000000000000000", "hr-key-of-nobody-0000000000000000"
RECORDS = Records(
    groups=(
        Group(
            level="team", name="red",
            terms=Terms(budgets=(Budget(amount=2 * 10**9, window="1M", calendar=True),)),
        ),
    ),
    keys=(
        KeyRecord(
            id="key_1", label="bot", secrets=(secret_of(KEY),), parent=Parent("team", "red"),
            terms=Terms(
                limits=(Limits(rpm=60, concurrency=4),),
                budgets=(Budget(amount=10 * 10**9, window="1d"),),
            ),
        ),
        KeyRecord(id="key_2", secrets=(secret_of(OTHER),)),
    ),
)  # fmt: skip


async def accounts() -> Accounts:
    made = Accounts(
        MemoryCounters(), now_ns=time.time_ns, random_bytes=os.urandom, configured=RECORDS
    )
    await made.start()
    return made


async def told(book: Accounts | None, key: str, path: str = "/api/v1/key", **access: Any) -> Told:
    settings = {**SETTINGS, "access": {**SETTINGS["access"], **access}}
    app = gateway(settings, [], accounts=book, environ={"MASTER": "m4ster"}).app
    headers = {"authorization": f"Bearer {key}"}
    return await ask(app, None, path=path, method="GET", headers=headers)


@pytest.mark.parametrize("path", ["/api/v1/key", "/v1/key", "/api/v1/auth/key"])
async def test_a_key_is_told_what_it_may_and_what_is_left(path: str) -> None:
    book = await accounts()
    demand = Demand(model="chat", most_cost_nusd=10**9)
    done = await book.reserve(book.caller(KEY), demand)
    await done.settle(Actual(cost_nusd=500_000_000))
    running = await book.reserve(book.caller(KEY), demand)
    data = (await told(book, KEY, path)).json["data"]
    assert data["label"] == "bot"
    # The team's has less left than the key's own.
    assert (data["limit"], data["usage"], data["limit_remaining"]) == (2.0, 0.5, 0.5)
    assert data["limit_reset"] == "monthly"
    assert data["rate_limit"] == {"requests": 60, "interval": "60s"}
    assert (data["is_free_tier"], data["is_management_key"]) == (False, False)
    own = {(one["level"], one["name"]): one for one in data["limits"]}
    budget = own["key", "budget"]
    assert (budget["used"], budget["held"], budget["remaining"]) == (0.5, 1.0, 8.5)
    assert own["key", "rpm"]["remaining"] == 58
    assert (own["key", "concurrency"]["held"], own["key", "concurrency"]["per"]) == (1, None)
    await running.release()


async def test_one_without_limits_has_nulls() -> None:
    data = (await told(await accounts(), OTHER)).json["data"]
    assert (data["label"], data["limit"], data["limit_remaining"]) == ("key_2", None, None)
    assert data["rate_limit"]["requests"] == -1 and data["limits"] == []


async def test_the_master_key_is_said_to_be_one() -> None:
    data = (await told(await accounts(), "m4ster")).json["data"]
    assert (data["label"], data["is_management_key"]) == ("master", True)


async def test_who_has_no_key_of_ours_is_told_nothing() -> None:
    answer = await told(await accounts(), "wrong")
    assert answer.status == 401 and "data" not in answer.json


async def test_where_no_key_is_asked_for_there_is_none() -> None:
    data = (await told(None, "any", require_key=False)).json["data"]
    assert (data["label"], data["limits"]) == (None, [])
