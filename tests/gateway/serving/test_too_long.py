"""Prompts that the gateway itself knows to be too long for all who may be asked first."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served

LONG = {"model": "short", "messages": [{"role": "user", "content": "word and word " * 500}]}
PRICE = {"input": 1000.0, "output": 0.0}


def config(origin: object, **short: Any) -> dict[str, Any]:
    return {
        "providers": {"a": {"base_url": f"{origin}/v1", "dialect": "openai-chat"}},
        "models": {
            "short": {"targets": [{"model": "a/short", "context_tokens": 100}], **short},
            "long": [{"model": "a/long", "context_tokens": 100_000, "price": PRICE}],
        },
    }


async def test_another_model_is_asked_in_their_place() -> None:
    entries: list[Entry] = []
    async with served(answers()) as provider:
        built = gateway(config(provider.origin, context_fallbacks=["long"]), entries)
        told = await ask(built.app, LONG)
    assert told.status == 200
    assert told.headers["x-headrace-target"] == "a/long"
    assert entries[0].target == "a/long"


async def test_its_cost_is_held() -> None:
    async with served(answers()) as provider:
        settings = config(provider.origin, context_fallbacks=["long"])
        budgets = [{"usd": 0.1, "per": "1d"}]
        settings["access"] = {"keys": {"k": {"key": "env:KEY", "budgets": budgets}}}
        built = gateway(settings, [], accounts=await accounts(settings))
        told = await ask(built.app, LONG, headers={"authorization": f"Bearer {KEY}"})
    assert told.status == 429, "2,300 tokens at a thousandth of a dollar"
    assert not provider.requests


async def test_without_another_model_the_client_hears_why() -> None:
    entries: list[Entry] = []
    async with served(answers()) as provider:
        told = await ask(gateway(config(provider.origin), entries).app, LONG)
    assert told.status == 400
    assert told.json["error"]["code"] == "context_length_exceeded"
    assert "it takes 100" in told.json["error"]["message"]
    assert not provider.requests


@pytest.mark.parametrize("max_tokens", [100, 100_000])
async def test_what_it_may_write_is_the_providers_to_judge(max_tokens: int) -> None:
    """Some end an answer where the context does."""
    async with served(answers()) as provider:
        body = {**LONG, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": max_tokens}
        app = gateway(config(provider.origin), []).app
        told = await ask(app, body)
        assert told.status == 200 and told.headers["x-headrace-target"] == "a/short"
        both = await ask(app, {**body, "provider": {"only": ["a"]}, "models": ["long"]})
        assert both.headers["x-headrace-target"] == "a/short", "which was asked for first"


async def test_who_has_room_for_all_it_may_write_is_asked_first() -> None:
    settings = config("http://127.0.0.1:9")
    targets = [{"model": f"a/{name}", "context_tokens": most} for name, most in
               (("short", 100), ("long", 100_000))]  # fmt: skip
    settings["models"]["short"] = {"strategy": "ordered", "targets": targets}
    async with served(answers()) as provider:
        settings["providers"]["a"]["base_url"] = f"{provider.origin}/v1"
        app = gateway(settings, []).app
        body = {**LONG, "messages": [{"role": "user", "content": "Hi"}]}
        few = await ask(app, {**body, "max_tokens": 10})
        many = await ask(app, {**body, "max_tokens": 100})
    assert few.headers["x-headrace-target"] == "a/short"
    assert many.headers["x-headrace-target"] == "a/long"


async def test_models_that_name_each_other_are_asked_once() -> None:
    async with served(answers()) as provider:
        settings = config(provider.origin, context_fallbacks=["long"])
        settings["models"]["long"] = {
            "targets": [{"model": "a/long", "context_tokens": 200}],
            "context_fallbacks": ["short"],
        }
        told = await ask(gateway(settings, []).app, LONG)
    assert told.status == 400
    assert told.json["error"]["code"] == "context_length_exceeded"
