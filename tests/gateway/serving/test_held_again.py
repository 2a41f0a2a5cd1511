"""What was paid to those who did not answer is held once more, whoever is asked next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Demand
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.holding import Holding
from headrace.gateway.serving.settle import Took
from headrace.protocol.neutral.usage import TokenUsage
from tests.gateway.accounts.test_no_way_around import hangs
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, answers, body_of, fails
from tests.gateway.serving.composed.models import cascade, says
from tests.gateway.serving.composed.models import settings as composed
from tests.gateway.serving.composed.test_holds import noted
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.test_embeddings import openai
from tests.gateway.upstream.scripted import Scripted, served

WHO = {"authorization": f"Bearer {KEY}"}
WORDS = "word " * 2000
RELIABILITY: dict[str, Any] = {
    "retries": {"backoff_s": 0.001, "backoff_max_s": 0.002, "attempts": 5, "same_target": 5},
    "timeouts": {"first_token_s": 0.3},
    "breaker": {"min_attempts": 100},
}
TOO_LONG = fails(400, "This model's maximum context length is 10 tokens")

both = pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/chat/completions",
            {"max_tokens": 10, "messages": [{"role": "user", "content": WORDS}]},
        ),
        ("/v1/embeddings", {"input": [WORDS]}),
    ],
    ids=["chat", "embeddings"],
)


async def answered(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    """Chats and embeddings."""
    of_texts = b"/embeddings" in request.split(b"\r\n", 1)[0]
    await (openai if of_texts else answers())(number, request, writer)


def by_model(**each: Answer) -> Answer:
    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await each[body_of(request)["model"]](number, request, writer)

    return answer


def two(origin: object, key: dict[str, Any], **cheap: Any) -> dict[str, Any]:
    """cheap and dear, each at a provider of its own name at `origin`."""
    prices = {"cheap": 0.1, "dear": 10.0}
    models: dict[str, Any] = {
        name: {"targets": [{"model": f"{name}/{name}", "price": {"input": usd, "output": usd}}]}
        for name, usd in prices.items()
    }
    models["cheap"].update(cheap)
    return {
        "access": {"keys": {"k": {"key": "env:KEY", **key}}},
        "providers": {
            name: {"base_url": f"{origin}/v1", "dialect": "openai-chat"} for name in prices
        },
        "models": models,
        **RELIABILITY,
    }


async def asked(
    settings: dict[str, Any],
    body: dict[str, Any],
    path: str = "/v1/chat/completions",
    book: Accounts | None = None,
) -> tuple[Told, list[Entry], Accounts]:
    entries: list[Entry] = []
    book = book or await accounts(settings)
    built = gateway(settings, entries, accounts=book)
    told = await ask(built.app, body, path=path, headers=WHO)
    built.close()
    return told, entries, book


def paid(entries: list[Entry]) -> int:
    return sum(one.cost_nusd or 0 for one in entries)


def requests_for(model: str, provider: Scripted) -> int:
    return sum(body_of(one)["model"] == model for one in provider.requests)


@both
async def test_a_dear_fallback_that_is_silent_stays_within_the_budget(
    path: str, body: dict[str, Any]
) -> None:
    """It is paid for each time, at its own price."""
    body = {"model": "cheap", **body}
    async with served(by_model(cheap=TOO_LONG, dear=hangs)) as provider:
        plenty = two(provider.origin, {"budgets": [{"usd": 50, "per": "1d"}]},
                     context_fallbacks=["dear"])  # fmt: skip
        _, entries, _ = await asked(plenty, body, path)
        attempts = requests_for("dear", provider)
        assert attempts >= 3
        prompt_nusd = paid(entries) // attempts
        limit_nusd = prompt_nusd * 5 // 2
        few = two(provider.origin, {"budgets": [{"usd": limit_nusd / 1e9, "per": "1d"}]},
                  context_fallbacks=["dear"])  # fmt: skip
        told, entries, book = await asked(few, body, path)
        assert 1 <= requests_for("dear", provider) - attempts <= 2, "for two there is room"
    assert told.status == 504
    (budget,) = await book.readings("key", "k")
    assert (budget.used, budget.held) == (paid(entries), 0)
    assert 0 < budget.used <= limit_nusd


ROUTED = {"auto": {"choose": {"by": "model", "default": "small", "model": {
    "ask": "strong", "classes": {"simple": "small", "hard": "medium"}, "timeout_ms": 5000,
}}}}  # fmt: skip


@pytest.mark.parametrize(
    "models",
    [
        cascade("strong", "small", by="rules"),
        cascade("small", "medium", by="judge", judge={"model": "strong"}),
        ROUTED,
    ],
    ids=["stage", "judge", "router"],
)
async def test_a_part_of_a_model_that_is_silent_stays_within_the_budget(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"model": "auto", "max_tokens": 10, "messages": [{"role": "user", "content": WORDS}]}
    said = says(strong=hangs, small="Four.", medium="Five.")

    async def of(limit_nusd: int) -> tuple[int, int, int]:
        """Times the silent one was asked, what one was paid, and what was held at first."""
        async with served(said) as provider:
            budgets = [{"usd": limit_nusd / 1e9, "per": "1d"}]
            access = {"keys": {"k": {"key": "env:KEY", "budgets": budgets}}}
            settings = composed(provider.origin, models, access=access, **RELIABILITY)
            book = await accounts(settings)
            demands = noted(book, monkeypatch)
            told, entries, _ = await asked(settings, body, book=book)
        assert told.status == 200, "whoever answers in any case was held for"
        (budget,) = await book.readings("key", "k")
        assert budget.held == 0 and budget.used == paid(entries) <= limit_nusd
        silent = [one.cost_nusd for one in entries if one.purpose == "attempt"]
        assert len(set(silent)) == 1 and silent[0] is not None
        held_nusd = demands[0].most_cost_nusd
        assert held_nusd is not None
        return len(silent), silent[0], held_nusd

    attempts, prompt_nusd, held_nusd = await of(50 * 10**9)
    assert attempts >= 3
    attempts, _, _ = await of(held_nusd + prompt_nusd * 3 // 2)
    assert attempts <= 2, "there is room for one more"


@both
async def test_a_limit_that_ends_it_is_told_with_its_wait(path: str, body: dict[str, Any]) -> None:
    async with served(hangs) as silent, served(answered) as well:
        # The words are counted as 3,334 tokens and some.
        settings = two(silent.origin, {"limits": [{"tpm": 5000}]}, fallbacks=["dear"])
        settings["providers"]["dear"]["base_url"] = f"{well.origin}/v1"
        settings["errors"] = {"detail": "full"}
        told, entries, _ = await asked(settings, {"model": "cheap", **body}, path)
        assert told.status == 504 and not well.requests
    said = told.json["error"]["message"]
    assert "cheap/cheap: timeout" in said
    assert "no other target was tried" in said and "tpm of 5000 tokens" in said
    assert 1 <= int(told.headers["retry-after"]) <= 61
    assert entries[0].outcome == "failed" and "tpm of 5000" in entries[0].error


@both
async def test_a_limit_of_another_model_is_not_taken_for_who_was_paid(
    path: str, body: dict[str, Any]
) -> None:
    async with served(hangs) as silent, served(answered) as well:
        key = {"limits": [{"tpm": 5000, "models": "dear"}, {"tpm": 50_000}]}
        settings = two(silent.origin, key, fallbacks=["dear"])
        settings["providers"]["dear"]["base_url"] = f"{well.origin}/v1"
        told, _, book = await asked(settings, {"model": "cheap", **body}, path)
    assert told.status == 200 and told.headers["x-headrace-model"] == "dear"
    assert [one.held for one in await book.readings("key", "k")] == [0, 0]


async def test_what_a_reply_of_no_use_had_written_is_held_too() -> None:
    settings = two("http://127.0.0.1:9", {"limits": [{"tpm": 100}]})
    book = await accounts(settings)
    holding = Holding(book, book.caller(KEY))
    await holding.take(Demand(model="cheap", input_tokens=10, most_output_tokens=10))
    took = Took("cheap", TokenUsage(input_tokens=10, output_tokens=40), 5)
    assert await holding.take_again([took]) is None
    no_room = await holding.take_again([took])
    assert no_room is not None and "tpm of 100 tokens" in no_room.said
    await holding.close(was_sent=False)
    (limit,) = await book.readings("key", "k")
    assert (limit.used, limit.held) == (0, 0)
