"""Whatever becomes of stages and clients: the ledger, the budget and the provider agree."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, body_of, fails
from tests.gateway.serving.composed.models import COST_NUSD, late, settings
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served

REQUESTS = 60
BEHAVIOURS = ("good", "refuse", "fail", "slow")
MODELS: dict[str, Any] = {
    "stages": {"cascade": {
        "stages": ["small", {"model": "medium", "timeout_s": 0.1}, "strong"],
        "accept": {"by": "judge", "judge": {"model": "judge", "timeout_s": 0.1}},
    }},
    "drafted": {"pipeline": {
        "draft": "small", "final": "strong", "decide": {"by": "rules"}, "give": {"draft": True},
    }},
    "beside": {"pipeline": {
        "draft": "small", "final": "strong", "decide": {"by": "rules"}, "speculative": True,
    }},
    "routed": {"choose": {"by": "model", "default": "small", "per_turn": True, "model": {
        "ask": "judge", "classes": {"2": "small", "9": "stages"}, "timeout_ms": 100,
    }}},
}  # fmt: skip


class Provider:
    """Each model does what the request's text says of it. told: whole answers by model."""

    def __init__(self) -> None:
        self.told: Counter[str] = Counter()

    async def answer(self, number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = body_of(request)
        model, text = asked["model"], asked["messages"][-1]["content"]
        found = json.loads(text[text.index("{") : text.index("}") + 1])
        does = found[model]
        good = "9" if model == "judge" else "Four it is, and no more"
        said = {"good": good, "refuse": "2" if model == "judge" else "I don't know."}
        if does == "fail":
            await fails(500)(number, request, writer)
            return
        answer = late(0.3, answers("late")) if does == "slow" else answers(said[does])
        self.told[model] += 1
        await answer(number, request, writer)


@pytest.mark.parametrize("seed", range(4))
async def test_ledger_and_budget_agree(seed: int) -> None:
    source = random.Random(seed)
    entries: list[Entry] = []
    provider = Provider()
    async with served(provider.answer) as scripted:
        budget = {"usd": 1000, "per": "1M"}
        config = settings(
            scripted.origin, MODELS, access={"keys": {"k": {"key": "env:KEY", "budgets": [budget]}}}
        )
        config["breaker"] = {"min_attempts": 10_000}
        book = await accounts(config)
        built = gateway(config, entries, accounts=book)

        async def one() -> None:
            does = {name: source.choice(BEHAVIOURS) for name in COST_NUSD}
            body = {
                "model": source.choice(list(MODELS)),
                "stream": source.random() < 0.5,
                "messages": [{"role": "user", "content": json.dumps(does)}],
            }
            leaves = source.choice((None, None, None, 0, 1))
            await asyncio.sleep(source.random() * 0.3)
            headers = {"authorization": f"Bearer {KEY}"}
            await ask(built.app, body, headers=headers, goes_after=leaves)

        await asyncio.gather(*(one() for _ in range(REQUESTS)))
        (used,) = await book.readings("key", "k")
    told = [one for one in entries if not one.purpose]
    assert len(told) == REQUESTS and len({one.id for one in entries}) == len(entries)
    assert {one.parent for one in entries if one.purpose} <= {one.id for one in told}
    assert used.held == 0, "nothing is held for ever"
    assert used.used == sum(one.cost_nusd or 0 for one in entries), "each once, and on the account"
    assert {one.outcome for one in told} >= {"answered", "client_gone"}
    counted = Counter(
        (one.target or "").partition("/")[2] for one in entries if one.usage_from == "provider"
    )
    for model, number in counted.items():
        assert number <= provider.told[model], "nothing is billed that nobody answered"
    assert all(
        target.health.in_flight == 0
        for route in built.router.routes.values()
        for target in route.targets
    )
