"""Ways to take more of a budget than was held for a request, through a whole gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import Answer, answers, completion, reply
from tests.gateway.test_accounts_of_the_file import CHAT, KEY, accounts
from tests.gateway.upstream.scripted import served

WHO = {"authorization": f"Bearer {KEY}"}
PRICE = {"input": 1000.0, "output": 1000.0}
NUSD_PER_TOKEN = 1_000_000

both = pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "max_tokens": 1}),
        ("/v1/embeddings", {"model": "chat", "input": ["some words " * 8]}),
    ],
    ids=["chat", "embeddings"],
)


def config(origin: object, key: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "access": {"keys": {"k": {"key": "env:KEY", **key}}},
        "providers": {"a": {"base_url": f"{origin}/v1", "dialect": "openai-chat"}},
        "models": {"chat": [{"model": "a/m", "price": PRICE}]},
        **more,
    }


async def used_and_held(book: Accounts) -> dict[str, tuple[int, int]]:
    return {one.meter.limit_name: (one.used, one.held) for one in await book.readings("key", "k")}


def wrote(tokens: int, tier: str | None) -> Answer:
    """An answer of so many tokens, at a service tier or without a word of one."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        value = completion("x")
        value["usage"] = {"prompt_tokens": 12, "completion_tokens": tokens}
        if tier is not None:
            value["service_tier"] = tier
        writer.write(reply(200, value))

    return answer


async def hangs(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(5)


@pytest.mark.parametrize("tier", ["x", "flex", "scale"])
async def test_a_tier_that_nobody_prices_is_refused_by_a_budget(tier: str) -> None:
    async with served(wrote(3, None)) as provider:
        settings = config(provider.origin, {"budgets": [{"usd": 5, "per": "1d"}]})
        built = gateway(settings, [], accounts=await accounts(settings))
        told = await ask(built.app, {**CHAT, "service_tier": tier}, headers=WHO)
    assert told.status == 403
    assert b"service tier" in told.body
    assert not provider.requests


@pytest.mark.parametrize("asked", [None, "x"])
@pytest.mark.parametrize("said", [None, "flex"])
async def test_a_cost_nobody_knows_counts_no_less_than_the_standard_price(
    asked: str | None, said: str | None
) -> None:
    """100,000 tokens, where 4,096 were held at most."""
    budget = {"usd": 5000, "per": "1d", "unknown_price": "allow"}
    entries: list[Entry] = []
    async with served(wrote(100_000, said)) as provider:
        settings = config(provider.origin, {"budgets": [budget]})
        book = await accounts(settings)
        body = CHAT if asked is None else {**CHAT, "service_tier": asked}
        told = await ask(gateway(settings, entries, accounts=book).app, body, headers=WHO)
    assert told.status == 200
    standard = 100_012 * NUSD_PER_TOKEN
    assert entries[0].cost_nusd == (None if said == "flex" else standard)
    assert (await used_and_held(book))["budget"] == (standard, 0)


@both
async def test_attempts_that_are_paid_and_not_answered_stay_within_the_budget(
    path: str, body: dict[str, Any]
) -> None:
    """Each may be paid as a prompt; another is made where there is room for it."""
    limit = 100 * NUSD_PER_TOKEN
    entries: list[Entry] = []
    async with served(hangs) as provider:
        settings = config(
            provider.origin,
            {"budgets": [{"usd": limit / 1e9, "per": "1d"}]},
            models={"chat": [{"model": f"a/{one}", "price": PRICE} for one in "uvwx"]},
            timeouts={"first_token_s": 0.1},
        )
        book = await accounts(settings)
        built = gateway(settings, entries, accounts=book)
        first = await ask(built.app, body, path=path, headers=WHO)
        prompt = sum(one.cost_nusd or 0 for one in entries) // len(provider.requests)
        others = await asyncio.gather(
            *(ask(built.app, body, path=path, headers=WHO) for _ in range(3))
        )
    used, held = (await used_and_held(book))["budget"]
    assert first.status == 504
    assert {one.status for one in others} <= {429, 402, 504}
    assert 1 < limit // prompt <= 4, "fewer attempts fit than would be made"
    assert held == 0
    assert len(provider.requests) == used // prompt
    assert used <= limit


@both
async def test_with_room_for_all_of_them_every_attempt_is_made(
    path: str, body: dict[str, Any]
) -> None:
    async with served(hangs) as provider:
        settings = config(
            provider.origin,
            {"budgets": [{"usd": 5, "per": "1d"}], "limits": [{"rpm": 1, "concurrency": 1}]},
            models={"chat": [{"model": f"a/{one}", "price": PRICE} for one in "uvw"]},
            timeouts={"first_token_s": 0.1},
            retries={"attempts": 3},
        )
        book = await accounts(settings)
        app = gateway(settings, [], accounts=book).app
        told = await ask(app, body, path=path, headers=WHO)
    assert told.status == 504
    assert len(provider.requests) == 3
    standing = await used_and_held(book)
    assert standing["rpm"] == (1, 0)
    assert standing["concurrency"] == (0, 0)


async def test_a_fault_behind_an_answer_gives_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def faulty(*_: object, **__: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr("headrace.gateway.serving.serve.line_of", faulty)
    async with served(answers()) as provider:
        settings = config(
            provider.origin,
            {"budgets": [{"usd": 5000, "per": "1d"}], "limits": [{"rpm": 1, "concurrency": 1}]},
        )
        book = await accounts(settings)
        built = gateway(settings, [], accounts=book)
        with pytest.raises(ValueError, match="a fault"):
            await ask(built.app, CHAT, headers=WHO)
        with pytest.raises(ValueError, match="a fault"):
            await ask(built.app, CHAT, headers=WHO)
    assert len(provider.requests) == 1, "the second was over its rpm"
    standing = await used_and_held(book)
    assert standing["rpm"] == (1, 0)
    assert standing["concurrency"] == (0, 0)
    assert standing["budget"][0] > 15 * NUSD_PER_TOKEN, "as much as was held"
