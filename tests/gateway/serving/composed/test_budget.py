"""What a model made of others holds back, and what it settles."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.serving.composed.models import COST_NUSD, PRICES, cascade, says, settings
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served

CHAT = {
    "model": "auto", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}],
}  # fmt: skip
HEADERS = {"authorization": f"Bearer {KEY}"}
CASCADE = cascade("small", "strong", by="judge", judge={"model": "judge"})
ROUTED = {"auto": {"choose": {"by": "model", "default": "small", "model": {
    "ask": "judge", "classes": {"simple": "small", "hard": "strong"},
}}}}  # fmt: skip


def limited(origin: Any, models: dict[str, Any], usd: float) -> dict[str, Any]:
    budget = {"usd": usd, "per": "1M"}
    access = {"keys": {"k": {"key": "env:KEY", "models": ["auto"], "budgets": [budget]}}}
    return settings(origin, models, access=access)


def output_usd(*names: str) -> float:
    """Of 1,000 tokens each."""
    return sum(PRICES[one][1] for one in names) / 1000


@pytest.mark.parametrize(
    ("models", "least"),
    [(CASCADE, output_usd("small", "strong")), (ROUTED, output_usd("strong"))],
)
async def test_all_that_may_be_asked_is_held_and_what_was_is_settled(
    models: dict[str, Any], least: float
) -> None:
    entries: list[Entry] = []
    said = says(small="Four.", strong="t", judge="hard 2")
    async with served(said) as provider:
        config = limited(provider.origin, models, least * 0.999)
        few = gateway(config, entries, accounts=await accounts(config))
        told = await ask(few.app, CHAT, headers=HEADERS)
        assert told.status == 429 and not provider.requests, told.body
        config = limited(provider.origin, models, least + 0.02)
        held = await accounts(config)
        enough = gateway(config, entries, accounts=held)
        for _ in range(3):
            assert (await ask(enough.app, CHAT, headers=HEADERS)).status == 200
    paid = sum(one.cost_nusd or 0 for one in entries)
    assert paid >= 3 * COST_NUSD["strong"] + COST_NUSD["judge"]
    assert {one.key for one in entries} == {"k"}
    (budget,) = await held.readings("key", "k")
    assert (budget.used, budget.held) == (paid, 0)
