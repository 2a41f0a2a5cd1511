"""Limits, budgets and permissions of a model, asked for by its other names, through a gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import answers, fails, reply
from tests.gateway.test_accounts_of_the_file import CHAT, KEY, accounts
from tests.gateway.upstream.scripted import served

BIG_NAMES: list[dict[str, Any]] = [
    {"model": "big"},
    {"model": "best"},
    {"model": "best:floor"},
    {"model": "a/big"},
    {"model": "a/BIG"},
    {"model": "a/big:nitro:floor"},
    {"model": "a/big:online"},
    {"model": "a/big:floor:online"},
    {"model": "a/./big"},
    {"model": "a//big"},
    {"model": "cheap", "models": ["big"]},
    {"model": "cheap", "models": ["best"]},
    {"model": "cheap", "models": ["a/big"]},
    {"model": "either"},
]
PRICE = {"input": 0.0, "output": 1_000.0}


def config(origin: object, key: dict[str, Any]) -> dict[str, Any]:
    return {
        "access": {"keys": {"k": {"key": "env:KEY", **key}}},
        "providers": {"a": {"base_url": f"{origin}/v1", "dialect": "openai-chat"}},
        "pass_unknown_models": True,
        "models": {
            "big": [{"model": "a/big", "price": PRICE}],
            "cheap": [{"model": "a/cheap", "price": {"input": 0.0, "output": 1.0}}],
            "either": {"targets": [{"model": "a/either", "price": PRICE}], "fallbacks": ["big"]},
        },
        "aliases": {"best": "big"},
    }


async def asked(app: Any, body: dict[str, Any], **more: Any) -> Told:
    headers = {"authorization": f"Bearer {KEY}"}
    return await ask(app, {**CHAT, **body}, headers=headers, **more)


@pytest.mark.parametrize("body", BIG_NAMES, ids=str)
@pytest.mark.parametrize(
    "terms",
    [
        {"limits": [{"rpm": 0, "models": "big"}]},
        {"budgets": [{"usd": 0.000001, "per": "1d", "models": "big", "unknown_price": "allow"},
                     {"usd": 0, "per": "1w", "models": "big", "unknown_price": "allow"}]},
    ],
    ids=["rpm", "budget"],
)  # fmt: skip
async def test_a_limit_of_a_model_holds_under_every_name(body: Any, terms: Any) -> None:
    async with served(answers()) as provider:
        settings = config(provider.origin, terms)
        app = gateway(settings, [], accounts=await accounts(settings)).app
        told = await asked(app, body)
        assert told.status == 429 and "key 'k'" in told.json["error"]["message"]
        assert not provider.requests
        assert (await asked(app, {"model": "cheap"})).status == 200


async def test_who_did_not_answer_is_given_back() -> None:
    terms = {
        "limits": [{"rpm": 5, "tpm": 100_000, "concurrency": 2, "models": "big"}],
        "budgets": [{"usd": 1, "per": "1d", "models": "big"}],
    }
    async with served(answers()) as provider:
        settings = config(provider.origin, terms)
        book = await accounts(settings)
        app = gateway(settings, [], accounts=book).app

        async def used() -> dict[str, tuple[int, int]]:
            readings = await book.readings("key", "k")
            return {one.meter.limit_name: (one.used, one.held) for one in readings}

        for _ in range(3):
            assert (await asked(app, {"model": "cheap", "models": ["best"]})).status == 200
        assert set((await used()).values()) == {(0, 0)}, "cheap answered"
        assert (await asked(app, {"model": "best"})).status == 200
        now = await used()
        assert now == {"rpm": (1, 0), "tpm": (15, 0), "concurrency": (0, 0),
                       "budget": (3_000_000, 0)}  # fmt: skip


async def test_a_fallback_that_answered_counts_for_both() -> None:
    async with served(answers()) as provider, served(fails(500)) as broken:
        settings = config(provider.origin, {"limits": [
            {"rpm": 9, "models": "big"}, {"rpm": 9, "models": "either"},
        ]})  # fmt: skip
        settings["providers"]["b"] = {"base_url": f"{broken.origin}/v1", "dialect": "openai-chat"}
        settings["models"]["either"]["targets"] = ["b/either"]
        book = await accounts(settings)
        app = gateway(settings, [], accounts=book).app
        assert (await asked(app, {"model": "either"})).status == 200
        readings = await book.readings("key", "k")
        assert {one.meter.model: one.used for one in readings} == {"big": 1, "either": 1}


@pytest.mark.parametrize(
    ("models", "body", "status"),
    [
        (["big"], {"model": "best"}, 200),
        (["best"], {"model": "best"}, 200),
        (["best"], {"model": "big"}, 403),
        (["cheap"], {"model": "best"}, 403),
        (["cheap"], {"model": "cheap", "models": ["best"]}, 403),
        (["cheap", "a/*"], {"model": "a/big"}, 200),
        (["cheap", "a/b*"], {"model": "a/big"}, 200),
        (["cheap", "a/*"], {"model": "big"}, 403),
        (["cheap", "a/*"], {"model": "best"}, 403),
        (["cheap", "a/c*"], {"model": "a/big"}, 403),
        (["cheap", "*/b*"], {"model": "a/big"}, 403),
        (["cheap", "?/*"], {"model": "a/big:online"}, 403),
        (["cheap", "*/*"], {"model": "a/BIG"}, 403),
        (["cheap", "*/*"], {"model": "a/./big:latest"}, 403),
        (["cheap", "*/*"], {"model": "a//big"}, 403),
        (["cheap", "*/*"], {"model": "a/else"}, 200),
        (["cheap", "a/*"], {"model": "a/big "}, 400),
        (["cheap", "a/*"], {"model": "a/else/../big"}, 400),
        (["cheap", "a/*"], {"model": "a/else:online"}, 200),
        (["cheap", "a/*"], {"model": "a/else"}, 200),
        (["cheap", "a/*"], {"model": "a/cheap"}, 200),
        (["a/big"], {"model": "a/big"}, 200),
        (["*"], {"model": "a/big"}, 200),
        (["either"], {"model": "either"}, 200),
    ],
    ids=str,
)
async def test_a_key_may_use_a_model_by_its_other_names(
    models: list[str], body: dict[str, Any], status: int
) -> None:
    async with served(answers()) as provider:
        settings = config(provider.origin, {"models": models})
        app = gateway(settings, [], accounts=await accounts(settings)).app
        assert (await asked(app, body)).status == status
        assert len(provider.requests) == (status == 200)


async def test_who_may_use_a_model_is_told_of_its_alias() -> None:
    settings = config("http://127.0.0.1:9", {"models": ["big"]})
    app = gateway(settings, [], accounts=await accounts(settings)).app
    listed = await asked(app, {}, path="/v1/models", method="GET")
    assert [one["id"] for one in listed.json["data"]] == ["big", "best"]


COUNTS = "/v1/messages/count_tokens"


def counting(key: dict[str, Any], origin: object = "http://127.0.0.1:9") -> dict[str, Any]:
    """As `config`; a prompt that is too long for `either` goes to `big`."""
    settings = config(origin, key)
    settings["providers"]["a"] = {"base_url": f"{origin}/v1", "kind": "anthropic"}
    settings["models"]["either"]["targets"][0]["context_tokens"] = 100
    return settings


@pytest.mark.parametrize("model", ["best", "a/big"])
async def test_counts_of_tokens_are_requests_for_the_model(model: str) -> None:
    settings = counting({"limits": [{"rpm": 1, "models": "big"}]})
    app = gateway(settings, [], accounts=await accounts(settings)).app
    told = [await asked(app, {"model": model}, path=COUNTS) for _ in range(2)]
    assert [one.status for one in told] == [200, 429]
    assert (await asked(app, {"model": "cheap"}, path=COUNTS)).status == 200


async def test_a_count_is_a_request_for_the_model_that_would_answer() -> None:
    """Of one that is asked for by the name of another, by both names."""
    long = [{"role": "user", "content": "many words " * 300}]
    limits = [{"rpm": 1, "models": "big"}, {"rpm": 9, "models": "either"}]
    async with served(counts) as provider:
        settings = counting({"limits": limits}, provider.origin)
        book = await accounts(settings)
        app = gateway(settings, [], accounts=book).app

        async def used() -> dict[str, int]:
            readings = await book.readings("key", "k")
            assert all(one.held == 0 for one in readings)
            return {one.meter.model: one.used for one in readings}

        told = await asked(app, {"model": "either"}, path=COUNTS)
        assert told.headers["x-headrace-target"] == "a/either"
        assert await used() == {"big": 0, "either": 1}, "big was not asked"
        told = await asked(app, {"model": "either", "messages": long}, path=COUNTS)
        assert told.headers["x-headrace-target"] == "a/big"
        assert await used() == {"big": 1, "either": 2}
        told = await asked(app, {"model": "either", "messages": long}, path=COUNTS)
        assert told.status == 429 and "'big'" in told.json["error"]["message"]
        assert (await asked(app, {"model": "either"}, path=COUNTS)).status == 200
        assert len(provider.requests) == 3


async def test_of_a_model_made_of_others_who_counted_is_the_one_that_counts() -> None:
    limits = [{"rpm": 9, "models": "cheap"}, {"rpm": 9, "models": "big"}]
    async with served(counts) as provider:
        settings = counting({"limits": limits}, provider.origin)
        settings["models"]["auto"] = {
            "cascade": {"stages": ["cheap", "big"], "accept": {"by": "rules"}}
        }
        book = await accounts(settings)
        app = gateway(settings, [], accounts=book).app
        told = await asked(app, {"model": "auto"}, path=COUNTS)
        assert told.headers["x-headrace-target"] == "a/big", "the surest of them"
        readings = await book.readings("key", "k")
        assert {one.meter.model: one.used for one in readings} == {"cheap": 0, "big": 1}


async def counts(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(200, {"input_tokens": 42}))


async def test_a_prompt_too_long_for_all_is_estimated_and_is_a_request_all_the_same() -> None:
    long = [{"role": "user", "content": "many words " * 300}]
    async with served(counts) as provider:
        settings = counting({"limits": [{"rpm": 1, "models": "either"}]}, provider.origin)
        del settings["models"]["either"]["fallbacks"]
        app = gateway(settings, [], accounts=await accounts(settings)).app
        body = {"model": "either", "messages": long}
        told = await asked(app, body, path=COUNTS)
        assert told.status == 200 and told.headers["x-headrace-count"] == "estimate"
        assert told.json["input_tokens"] > 500
        assert (await asked(app, body, path=COUNTS)).status == 429
        assert not provider.requests


@pytest.mark.parametrize("model", ["best", "a/big"])
async def test_answers_of_the_cache_are_requests_for_the_model(model: str) -> None:
    async with served(answers()) as provider:
        settings = {**config(provider.origin, {"limits": [{"rpm": 1, "models": "big"}]}),
                    "cache": {}}  # fmt: skip
        app = gateway(settings, [], accounts=await accounts(settings)).app
        body = {"model": model, "temperature": 0}
        assert (await asked(app, body)).status == 200
        assert (await asked(app, body)).status == 429
        assert len(provider.requests) == 1


@pytest.mark.parametrize("model", ["best", "a/big"])
async def test_embeddings_count_for_the_model(model: str) -> None:
    async with served(answers()) as provider:
        settings = config(provider.origin, {"limits": [{"rpm": 0, "models": "big"}]})
        app = gateway(settings, [], accounts=await accounts(settings)).app
        headers = {"authorization": f"Bearer {KEY}"}
        body = {"model": model, "input": "x"}
        told = await ask(app, body, path="/v1/embeddings", headers=headers)
        assert told.status == 429 and not provider.requests


@pytest.mark.parametrize("failure", ["context", "policy"])
async def test_other_models_for_what_one_cannot_take_are_held_for(failure: str) -> None:
    """With many in parallel, none of which has been billed when the others are let in."""
    entries: list[Entry] = []
    code = "context_length_exceeded" if failure == "context" else "content_filter"
    said = fails_with(code)
    async with served(answers()) as provider, served(said) as small:
        settings = config(provider.origin, {"budgets": [{"usd": 0.0101, "per": "1d"}]})
        settings["providers"]["b"] = {"base_url": f"{small.origin}/v1", "dialect": "openai-chat"}
        settings["models"]["small"] = {
            "targets": [{"model": "b/s", "price": {"input": 0.0, "output": 0.001}}],
            f"{failure}_fallbacks": ["best"],
        }
        app = gateway(settings, entries, accounts=await accounts(settings)).app
        told = await asyncio.gather(*(asked(app, {"model": "small"}) for _ in range(20)))
        # $0.01 may be taken by each, and $0.003 is what it comes to.
        assert sum(one.cost_nusd or 0 for one in entries) <= 10_100_000
        assert {one.status for one in told} == {200, 429}
        assert "key 'k'" in next(one for one in told if one.status == 429).json["error"]["message"]


def fails_with(code: str) -> Any:
    """A 400 with a code."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        error = {"message": "no", "type": "invalid_request_error", "code": code}
        writer.write(reply(400, {"error": error}))

    return answer


async def test_what_failed_is_a_request_for_who_was_asked_alone() -> None:
    async with served(fails(400)) as provider:
        settings = config(provider.origin, {"limits": [
            {"rpm": 9, "models": "big"}, {"rpm": 9, "models": "cheap"},
        ]})  # fmt: skip
        book = await accounts(settings)
        app = gateway(settings, [], accounts=book).app
        told = await asked(app, {"model": "cheap", "models": ["best"]})
        assert told.status == 400 and len(provider.requests) == 1
        readings = await book.readings("key", "k")
        used = {one.meter.model: one.used for one in readings}
        assert used["big"] == 0, "it was not asked"
