"""What is held for whoever is asked besides the answer of a model made of others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Caller, Demand
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import body_of, completion, fails, reply
from tests.gateway.serving.composed.models import COST_NUSD, PRICES, cascade, says, settings
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served

CHAT: dict[str, Any] = {
    "model": "auto", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}],
}  # fmt: skip
HEADERS = {"authorization": f"Bearer {KEY}"}
PLENTY = {"budgets": [{"usd": 50, "per": "1d"}]}


def of_key(origin: Any, models: dict[str, Any], key: dict[str, Any], **more: Any) -> dict[str, Any]:
    access = {"keys": {"k": {"key": "env:KEY", **key}}}
    return settings(origin, models, access=access, **more)


def noted(book: Accounts, monkeypatch: pytest.MonkeyPatch) -> list[Demand]:
    """What is held, as it is."""
    demands: list[Demand] = []
    reserve = book.reserve

    async def note(caller: Caller, demand: Demand) -> Reservation:
        demands.append(demand)
        return await reserve(caller, demand)

    monkeypatch.setattr(book, "reserve", note)
    return demands


async def many(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    """As many short answers as are asked for, each counted as all that it may have."""
    body = body_of(request)
    told, count = completion("no"), body.get("n", 1)
    told["choices"] = [{**told["choices"][0], "index": one} for one in range(count)]
    told["usage"] = {"prompt_tokens": 12, "completion_tokens": body["max_tokens"] * count}
    told["service_tier"] = body.get("service_tier", "default")
    writer.write(reply(200, told))


@pytest.mark.parametrize("tier", [None, "priority"])
async def test_a_stage_is_held_with_all_its_choices_at_the_tier_asked_for(
    tier: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: list[Entry] = []
    models = cascade("small", "strong", by="rules", rules={"min_chars": 1000})
    dear = {"input": 1.0, "output": 2.0, "priority_factor": 3.0}
    models["small"] = {"targets": [{"model": "a/small", "price": dear}]}
    models["strong"] = {"targets": [{"model": "a/strong", "price": {"input": 0, "output": 0}}]}
    async with served(many) as provider:
        config = of_key(provider.origin, models, PLENTY)
        book = await accounts(config)
        demands = noted(book, monkeypatch)
        body = {**CHAT, "n": 8} | ({"service_tier": tier} if tier else {})
        told = await ask(gateway(config, entries, accounts=book).app, body, headers=HEADERS)
        assert told.status == 200
    (demand,) = demands
    paid = sum(one.cost_nusd or 0 for one in entries)
    assert paid == (12_000 + 8 * 100 * 2_000) * (3 if tier else 1)
    assert demand.most_cost_nusd is not None and paid <= demand.most_cost_nusd < 1.1 * paid
    assert demand.most_output_tokens == 2 * 8 * 100


async def test_a_draft_is_held_as_input_of_who_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def held(**more: Any) -> Demand:
        models = {"auto": {"pipeline": {
            "draft": "small", "decide": {"by": "rules"}, "final": "strong", **more,
        }}}  # fmt: skip
        async with served(says(small="Four.")) as provider:
            config = of_key(provider.origin, models, PLENTY)
            book = await accounts(config)
            demands = noted(book, monkeypatch)
            told = await ask(gateway(config, [], accounts=book).app, CHAT, headers=HEADERS)
            assert told.status == 200
        return demands[0]

    alone, given = await held(), await held(give={"draft": True})
    assert alone.most_cost_nusd is not None and given.most_cost_nusd is not None
    assert given.input_tokens - alone.input_tokens >= CHAT["max_tokens"]
    more_nusd = given.most_cost_nusd - alone.most_cost_nusd
    assert more_nusd == (given.input_tokens - alone.input_tokens) * PRICES["strong"][0] * 1000


@pytest.mark.parametrize(
    ("key", "served_times"),
    [
        ({"limits": [{"rpm": 1, "models": "judge"}]}, 1),
        ({"limits": [{"rpm": 2, "models": "other"}]}, 2),
        ({"limits": [{"rpm": 1, "models": "small"}]}, 1),
        # All that is asked for one request is one request.
        ({"limits": [{"rpm": 3}]}, 3),
    ],
)
async def test_limits_of_who_judges_or_goes_before_hold(
    key: dict[str, Any], served_times: int
) -> None:
    models = cascade("small", "strong", by="judge", judge={"model": "other"})
    async with served(says(small="Four.", strong="Five.", judge="2")) as provider:
        config = of_key(provider.origin, models, key, aliases={"other": "judge"})
        book = await accounts(config)
        app = gateway(config, [], accounts=book).app
        told = [(await ask(app, CHAT, headers=HEADERS)).status for _ in range(served_times + 1)]
    assert told == [200] * served_times + [429]
    (reading,) = await book.readings("key", "k")
    assert (reading.used, reading.held) == (served_times, 0)


async def test_a_budget_of_who_judges_is_spent_by_what_judges_took() -> None:
    models = cascade("small", "strong", by="judge", judge={"model": "judge"})
    key = {"budgets": [{"usd": 0.01, "per": "1d", "models": "judge"}]}
    async with served(says(small="Four.", strong="Five.", judge="2")) as provider:
        config = of_key(provider.origin, models, key)
        book = await accounts(config)
        app = gateway(config, [], accounts=book).app
        assert [(await ask(app, CHAT, headers=HEADERS)).status for _ in range(2)] == [200, 200]
        (budget,) = await book.readings("key", "k")
        assert (budget.used, budget.held) == (2 * COST_NUSD["judge"], 0)


async def test_limits_of_a_router_model_hold() -> None:
    models = {"auto": {"choose": {"by": "model", "per_turn": True, "default": "small", "model": {
        "ask": "judge", "classes": {"simple": "small", "hard": "strong"},
    }}}}  # fmt: skip
    key = {"limits": [{"rpm": 1, "models": "judge"}]}
    async with served(says(small="Four.", strong="Five.", judge="hard")) as provider:
        config = of_key(provider.origin, models, key)
        app = gateway(config, [], accounts=await accounts(config)).app
        assert [(await ask(app, CHAT, headers=HEADERS)).status for _ in range(2)] == [200, 429]


async def test_a_stage_counts_for_the_model_that_answered_in_its_place() -> None:
    models = cascade("small", "strong", by="rules")
    models["small"] = {
        "targets": [{"model": "a/small", "price": {"input": 1, "output": 2}}],
        "fallbacks": ["medium"],
    }
    limits = [{"rpm": 5, "models": one} for one in ("small", "medium", "strong")]
    async with served(says(small=fails(503), medium="I don't know.", strong="4")) as provider:
        retries = {"attempts": 2, "same_target": 1, "backoff_s": 0.01}
        config = of_key(provider.origin, models, {"limits": limits}, retries=retries)
        book = await accounts(config)
        told = await ask(gateway(config, [], accounts=book).app, CHAT, headers=HEADERS)
        assert told.status == 200
    used = {one.meter.model: (one.used, one.held) for one in await book.readings("key", "k")}
    assert used == {"small": (0, 0), "medium": (1, 0), "strong": (1, 0)}


async def test_stages_are_held_where_the_last_one_cannot_be_asked() -> None:
    models = cascade("small", "strong", by="rules")
    async with served(says(small="Four.")) as provider:
        config = of_key(provider.origin, models, {"limits": [{"rpm": 1}]})
        config["providers"]["b"] = config["providers"]["a"]
        config["models"]["strong"] = "b/strong"
        app = gateway(config, [], accounts=await accounts(config)).app
        body = {**CHAT, "provider": {"ignore": ["b"]}}
        assert [(await ask(app, body, headers=HEADERS)).status for _ in range(2)] == [200, 429]


async def test_fallbacks_of_what_a_router_model_may_choose_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = cascade("small", "medium", by="rules")
    models["careful"] = {**models.pop("auto"), "fallbacks": ["strong"]}
    models["auto"] = {"choose": {"by": "model", "default": "small", "model": {
        "ask": "judge", "classes": {"simple": "small", "hard": "careful"},
    }}}  # fmt: skip
    async with served(says(small="Four.", judge="hard")) as provider:
        config = of_key(provider.origin, models, PLENTY)
        book = await accounts(config)
        demands = noted(book, monkeypatch)
        told = await ask(gateway(config, [], accounts=book).app, CHAT, headers=HEADERS)
        assert told.status == 200
    most = demands[0].most_cost_nusd
    assert most is not None
    assert most > CHAT["max_tokens"] * (PRICES["small"][1] + PRICES["strong"][1]) * 1000


async def test_hedges_of_the_last_one_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    async def held(**more: Any) -> Demand:
        models = cascade("small", "strong", by="rules")
        targets = [{"model": f"a/{one}", "price": {"input": 10, "output": 30}} for one in "sz"]
        models["strong"] = {"targets": targets, **more}
        async with served(says(small="Four.")) as provider:
            config = of_key(provider.origin, models, PLENTY)
            book = await accounts(config)
            demands = noted(book, monkeypatch)
            told = await ask(gateway(config, [], accounts=book).app, CHAT, headers=HEADERS)
            assert told.status == 200
        return demands[0]

    alone, hedged = await held(), await held(hedge={"after_ms": 5000})
    assert alone.most_cost_nusd is not None and hedged.most_cost_nusd is not None
    more_tokens = hedged.input_tokens - alone.input_tokens
    assert more_tokens > 0
    assert hedged.most_cost_nusd - alone.most_cost_nusd == more_tokens * 10 * 1000
