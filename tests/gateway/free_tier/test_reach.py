"""Limits of what costs nothing hold however a free target is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.gateway.free_tier.test_limits import FREE, PAID, Asking, Clock, free
from tests.gateway.harness import ask
from tests.gateway.openai_provider import answers, body_of, fails
from tests.gateway.serving.composed.models import asked, model_of
from tests.gateway.shadow.test_shadowed import told_all
from tests.gateway.test_embeddings import BODY, openai
from tests.gateway.upstream.scripted import served

RULES = {"by": "rules", "rules": {"min_chars": 1000}}
JUDGE = {"by": "judge", "judge": {"model": "free"}}
EITHER = {
    "strategy": "ordered",
    "targets": [{"model": "p/free", "price": FREE}, {"model": "p/paid", "price": PAID}],
}
ROUTED = {"choose": {"by": "model", "per_turn": True, "default": "paid", "model": {
    "ask": "paid", "classes": {"simple": "paid", "two": "either"},
}}}  # fmt: skip


@pytest.mark.parametrize(
    ("auto", "then_asked"),
    [
        ({"cascade": {"stages": ["paid", "either"], "accept": RULES}}, ["paid", "paid"]),
        ({"cascade": {"stages": ["either", "paid"], "accept": RULES}}, ["paid", "paid"]),
        ({"cascade": {"stages": ["free", "paid"], "accept": RULES}}, ["paid"]),
        ({"cascade": {"stages": ["paid", "paid"], "accept": JUDGE}}, ["paid", "paid"]),
        (ROUTED, ["paid", "paid"]),
        ({"choose": {"by": "rules", "rules": [{"if": {"tools": True}, "use": "paid"}],
                     "default": "either"}}, ["paid"]),
    ],
)  # fmt: skip
async def test_models_made_of_others(auto: dict[str, Any], then_asked: Sequence[str]) -> None:
    models = {
        "auto": auto, "either": EITHER, "free": [{"model": "p/free", "price": FREE}],
        "paid": [{"model": "p/paid", "price": PAID}],
    }  # fmt: skip
    async with served(answers("two")) as provider:
        asking = Asking(free(str(provider.origin), models=models, free_tier={"rpm": 1}), Clock())
        assert (await asking.ask("a", model="auto")).status == 200
        assert asked(provider.requests, model_of).count("free") == 1
        for _ in range(3):
            provider.requests.clear()
            told = await asking.ask("a", model="auto")
            assert told.status == 200, told.body
            assert asked(provider.requests, model_of) == then_asked


async def test_a_model_made_of_others_that_only_free_targets_end_is_refused() -> None:
    models = {
        "auto": {"cascade": {"stages": ["paid", "free"], "accept": RULES}},
        "free": [{"model": "p/free", "price": FREE}],
        "paid": [{"model": "p/paid", "price": PAID}],
    }
    async with served(answers()) as provider:
        asking = Asking(free(str(provider.origin), models=models, free_tier={"rpm": 1}), Clock())
        told = [await asking.ask("a", model="auto") for _ in range(2)]
        assert [one.status for one in told] == [200, 429]
        assert "free_rpm of 1 requests" in told[1].json["error"]["message"]
        assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("context_fallbacks", "This model's maximum context length is 10 tokens"),
        ("policy_fallbacks", "The response was filtered by the content management policy"),
    ],
)
async def test_fallbacks(field: str, message: str) -> None:
    good, bad = answers(), fails(400, message)

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        chosen = bad if model_of(body_of(request)) == "paid" else good
        await chosen(number, request, writer)

    models = {
        "chat": {"targets": [{"model": "p/paid", "price": PAID}], field: ["free"]},
        "free": [{"model": "p/free", "price": FREE}],
    }
    async with served(answer) as provider:
        asking = Asking(free(str(provider.origin), models=models, free_tier={"rpm": 2}), Clock())
        told = [(await asking.ask("a")).status for _ in range(4)]
        assert told == [200, 200, 429, 429], "it is worth another try"
        assert asked(provider.requests, model_of).count("free") == 2


async def test_what_asks_money_for_any_kind_of_token_is_not_free() -> None:
    targets = [{"model": "p/m", "price": {**FREE, "cache_write": 1}}]
    async with served(answers()) as provider:
        asking = Asking(free(str(provider.origin), models={"chat": targets}), Clock())
        told = await asking.ask("a", model="chat:free")
        assert told.status == 400 and not provider.requests
        assert "it is not free of charge" in told.json["error"]["message"]
        assert (await asking.ask("a")).status == 200


async def test_fallbacks_of_embeddings() -> None:
    bad = fails(400, "This model's maximum context length is 10 tokens")

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        chosen = bad if model_of(body_of(request)) == "paid" else openai
        await chosen(number, request, writer)

    models = {
        "chat": {"targets": [{"model": "p/paid", "price": PAID}], "context_fallbacks": ["free"]},
        "free": [{"model": "p/free", "price": FREE}],
    }
    async with served(answer) as provider:
        url = f"{provider.origin}/v1"
        providers = {"p": {"base_url": url, "dialect": "openai-chat"}}
        config = free(url, models=models, providers=providers, free_tier={"rpm": 1})
        asking = Asking({**config, "access": {"require_key": False}}, Clock())
        body = {**BODY, "model": "chat"}
        app = asking.gateway.app
        told = [(await ask(app, body, path="/v1/embeddings")).status for _ in range(3)]
        assert told == [200, 429, 429]
        assert asked(provider.requests, model_of).count("free") == 1


async def test_a_shadow_that_is_free_is_on_nobodys_account() -> None:
    chat = {**EITHER, "shadow": {"target": {"model": "p/copy", "price": FREE}}}
    async with served(answers()) as provider:
        settings = free(str(provider.origin), models={"chat": chat}, free_tier={"rpm": 1})
        asking = Asking(settings, Clock())
        for _ in range(3):
            assert (await asking.ask("a")).status == 200
            await told_all(asking.gateway)
        models = asked(provider.requests, model_of)
        assert sorted(models) == ["copy"] * 3 + ["free"] + ["paid"] * 2
