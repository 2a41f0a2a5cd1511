"""Embeddings that another model makes, as texts too long for the first; whose limits count then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, body_of, fails, reply
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.test_embeddings import BODY, cohere, openai
from tests.gateway.upstream.scripted import served

TOO_LONG = fails(400, "This model's maximum context length is 8192 tokens, however you asked 9000")
HEADERS = {"authorization": f"Bearer {KEY}"}
PRICE = {"input": 1.0, "output": 0.0}


async def policy(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    error = {"error": {"message": "no", "type": "x", "code": "content_policy_violation"}}
    writer.write(reply(400, error))


def config(*origins: object, dialects: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """vectors at provider a, large at b, other at c; each has a price."""
    names = dict(zip("abc", ("vectors", "large", "other"), strict=True))
    used = list(zip("abc", origins, strict=False))
    return {
        "access": {"keys": {"k": {"key": "env:KEY", **more}}},
        "providers": {
            one: {"base_url": str(origin), "dialect": (dialects or ("openai-chat",) * 3)[at]}
            for at, (one, origin) in enumerate(used)
        },
        "models": {
            names[one]: {"targets": [{"model": f"{one}/e", "price": PRICE}]} for one, _ in used
        },
    }


async def asked(
    settings: dict[str, Any], body: dict[str, Any] = BODY, **more: Any
) -> tuple[Told, Entry, Accounts]:
    entries: list[Entry] = []
    book = await accounts(settings)
    built = gateway(settings, entries, accounts=book)
    told = await ask(built.app, body, path="/v1/embeddings", headers=HEADERS, **more)
    built.close()
    (entry,) = entries
    return told, entry, book


async def used(book: Accounts) -> dict[tuple[str, str], int]:
    readings = await book.readings("key", "k")
    assert all(one.held == 0 for one in readings)
    return {(one.meter.limit_name, one.meter.model): one.used for one in readings}


def limits(**models: int) -> dict[str, Any]:
    return {
        "limits": [{"rpm": rpm, "tpm": 1000, "models": name} for name, rpm in models.items()],
        "budgets": [{"usd": 1, "per": "1d", "models": name} for name in models],
    }


@pytest.mark.parametrize("body", [BODY, {**BODY, "encoding_format": "base64"}], ids=str)
async def test_texts_too_long_for_the_first_go_to_the_models_named_for_that(body: Any) -> None:
    async with served(TOO_LONG) as small, served(openai) as large, served(openai) as other:
        settings = config(small.origin, large.origin, other.origin)
        settings["models"]["vectors"]["context_fallbacks"] = ["large"]
        settings["models"]["vectors"]["fallbacks"] = ["other"]
        told, entry, _ = await asked(settings, body)
        assert told.status == 200 and told.headers["x-headrace-model"] == "large"
        assert entry.target == "b/e" and not other.requests
        assert [one.failure for one in entry.attempts] == ["context_length"]
        assert body_of(large.requests[0])["input"] == BODY["input"]


async def test_what_one_will_not_embed_goes_to_the_models_named_for_that() -> None:
    async with served(policy) as strict, served(openai) as other:
        settings = config(strict.origin, other.origin)
        settings["models"]["vectors"]["policy_fallbacks"] = ["large"]
        told, entry, _ = await asked(settings)
        assert told.status == 200 and entry.target == "b/e"


async def test_each_list_is_followed_once_and_only_to_who_makes_embeddings() -> None:
    async with served(TOO_LONG) as small, served(TOO_LONG) as large, served(openai) as other:
        settings = config(small.origin, large.origin, other.origin)
        settings["models"]["vectors"]["context_fallbacks"] = ["large", "other"]
        settings["models"]["large"]["context_fallbacks"] = ["vectors"]
        told, entry, _ = await asked(settings)
        assert told.status == 200 and entry.target == "c/e"
        assert len(small.requests) == len(large.requests) == 1
        settings = config(small.origin, "http://127.0.0.1:9", dialects=("openai-chat", "anthropic"))
        settings["models"]["vectors"]["context_fallbacks"] = ["large"]
        told, entry, _ = await asked(settings)
        assert told.status == 400 and told.json["error"]["code"] == "context_length_exceeded"
        assert entry.outcome == "refused" and entry.cost_nusd is None
    async with served(TOO_LONG) as small, served(openai) as large:
        told, _, _ = await asked(config(small.origin, large.origin))
        assert told.status == 400 and not large.requests, "nobody is named"


async def test_the_limits_of_the_model_that_answered_count() -> None:
    async with served(TOO_LONG) as small, served(openai) as large:
        settings = config(small.origin, large.origin, **limits(vectors=5, large=5))
        settings["models"]["vectors"]["context_fallbacks"] = ["large"]
        _, _, book = await asked(settings)
        now = await used(book)
        assert now["rpm", "large"] == 1 and now["tpm", "large"] == 4
        assert now["budget", "large"] == 4000 and now["budget", "vectors"] == 4000, "asked by it"
        settings = config(small.origin, large.origin, **limits(large=0))
        settings["models"]["vectors"]["context_fallbacks"] = ["large"]
        count = len(small.requests)
        told, entry, _ = await asked(settings)
        assert told.status == 429 and entry.outcome == "refused"
        assert len(small.requests) == count, "a refused request reaches nobody"


async def test_who_did_not_answer_is_given_back() -> None:
    async with served(openai) as one, served(openai) as other:
        settings = config(one.origin, other.origin, **limits(vectors=5, large=5))
        _, entry, book = await asked(settings, {**BODY, "models": ["large"]})
        now = await used(book)
        assert entry.target == "a/e" and now["rpm", "vectors"] == 1 and now["tpm", "vectors"] == 4
        assert now["rpm", "large"] == now["tpm", "large"] == now["budget", "large"] == 0


async def test_batches_count_for_the_model_that_made_them() -> None:
    """The first makes one batch of two and fails; the second makes all."""

    async def half(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await (cohere if len(body_of(request)["texts"]) > 1 else fails(500))(
            number, request, writer
        )

    body = {"model": "vectors", "input": ["text"] * 97}
    async with served(half) as one, served(openai) as other:
        settings = config(one.origin, other.origin, dialects=("cohere", "openai-chat"),
                          **limits(vectors=5, large=5))  # fmt: skip
        settings["models"]["vectors"]["fallbacks"] = ["large"]
        told, entry, book = await asked(settings, body)
        now = await used(book)
    assert told.status == 200 and entry.target == "b/e" and entry.cost_nusd == 8000
    assert now["budget", "large"] == 4000 and now["tpm", "large"] == 4
    assert now["budget", "vectors"] == 8000 and now["tpm", "vectors"] == 8, "all was asked by it"


@pytest.mark.parametrize("answer", ["error", "nobody"])
async def test_a_request_that_was_sent_counts_as_one(answer: str) -> None:
    async with served(fails(500)) as provider:
        origin = provider.origin if answer == "error" else "http://127.0.0.1:9"
        settings = {**config(origin, **limits(vectors=5)), "retries": {"attempts": 1}}
        told, entry, book = await asked(settings)
    assert told.status == 502 and entry.usage is None
    now = await used(book)
    assert now["rpm", "vectors"] == (answer == "error") and now["budget", "vectors"] == 0


def silent(*, begins: bool, status: int = 200) -> Answer:
    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        if begins:
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 99\r\n\r\n{" % status)
        await writer.drain()
        writer.close()

    return answer


@pytest.mark.parametrize(
    ("begins", "status", "paid"), [(False, 200, 4000), (True, 200, 4000), (True, 500, None)]
)
async def test_what_was_sent_and_got_no_reply_is_billed(
    begins: bool, status: int, paid: int | None
) -> None:
    async with served(silent(begins=begins, status=status)) as provider:
        settings = {**config(provider.origin, **limits(vectors=5)), "retries": {"attempts": 1}}
        _, entry, book = await asked(settings)
    assert entry.outcome == "failed" and entry.cost_nusd == paid
    assert entry.usage_from == ("none" if paid is None else "estimated")
    assert (await used(book))["budget", "vectors"] == (paid or 0)


async def test_a_provider_that_takes_too_long_is_billed_and_the_next_is_asked() -> None:
    gone = asyncio.Event()

    async def hangs(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        await gone.wait()

    async with served(hangs) as slow, served(openai) as other:
        settings = config(slow.origin, other.origin)
        settings["providers"]["a"]["timeouts"] = {"first_token_s": 0.3}
        settings["models"]["vectors"]["fallbacks"] = ["large"]
        told, entry, _ = await asked(settings)
        gone.set()
    assert told.status == 200 and entry.target == "b/e"
    assert entry.usage is not None and entry.usage.input_tokens == 8
    assert entry.usage_from == "estimated" and entry.cost_nusd == 8000


async def test_a_target_may_have_a_longer_time_of_its_own() -> None:
    async def slow(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        await openai(number, request, writer)

    async with served(slow) as provider:
        settings = config(provider.origin)
        settings["providers"]["a"]["timeouts"] = {"first_token_s": 0.05}
        settings["models"]["vectors"]["targets"][0]["timeouts"] = {"first_token_s": 9}
        told, entry, _ = await asked(settings)
    assert told.status == 200 and entry.target == "a/e"
