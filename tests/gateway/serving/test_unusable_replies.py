"""Replies of no use, and answers of which nobody tells what they take, are paid all the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import standing
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import STREAM_HEAD, Answer, answers, completion, framed, reply
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import Scripted, served

HELD_NUSD = 20_000_000  # 10,000 tokens out
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10_000}
RESPONSES = {"input": "Hi", "max_output_tokens": 10_000}
USED = {"input_tokens": 10, "output_tokens": 1000, "total_tokens": 1010}
BROKEN = {
    "id": "r", "object": "response", "created_at": 1, "status": "failed", "output": [],
    "error": {"code": "server_error", "message": "x"}, "model": "m", "usage": USED,
}  # fmt: skip


def says(value: Any) -> Answer:
    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, value))

    return answer


def with_choice(**fields: Any) -> dict[str, Any]:
    told = completion("x")
    told["choices"][0] |= fields
    return told


def streams(*events: dict[str, Any]) -> Answer:
    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for one in events:
            said = f"event: {one['type']}\ndata: {json.dumps(one)}\n\n"
            writer.write(framed(said.encode()))
        writer.write(b"0\r\n\r\n")

    return answer


def config(*each: Scripted) -> dict[str, Any]:
    names = "ab"[: len(each)]
    return {
        "access": {
            "keys": {"k": {"key": "env:KEY", "budgets": [{"usd": 1.0, "per": "1d"}]}}
        },
        "listen": {"max_reply_bytes": 4096},
        "errors": {"detail": "full"},
        "providers": {
            name: {"kind": "openai", "base_url": f"{one.origin}/v1", "api_key": "k",
                   "responses": True}
            for name, one in zip(names, each, strict=True)
        },
        "models": {"m": {"strategy": "ordered", "targets": [
            {"model": f"{name}/m", "price": {"input": 1, "output": 2}} for name in names
        ]}},
        "retries": {"backoff_s": 0.001, "attempts": 3, "same_target": 3},
    }  # fmt: skip


async def asked(
    settings: dict[str, Any],
    body: dict[str, Any],
    path: str,
    goes_when: Callable[[], bool] | None = None,
) -> tuple[Told, list[Entry], Accounts]:
    book = await accounts(settings)
    entries: list[Entry] = []
    built = gateway(settings, entries, accounts=book)
    who = {"authorization": f"Bearer {KEY}"}
    told = await ask(built.app, {"model": "m", **body}, path=path, headers=who, goes_when=goes_when)
    for _ in range(100):
        if entries:
            break
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    built.close()
    return told, entries, book


@pytest.mark.parametrize(
    ("path", "body", "value"),
    [
        ("/v1/chat/completions", CHAT, {**completion("x"), "choices": []}),
        ("/v1/chat/completions", CHAT, with_choice(finish_reason="error")),
        ("/v1/chat/completions", CHAT, with_choice(error={"message": "gone", "code": 502})),
        ("/v1/responses", RESPONSES, BROKEN),
    ],
    ids=["no choices", "an end in error", "a choice in error", "failed"],
)
async def test_a_reply_of_no_use_is_billed_as_it_says(
    path: str, body: dict[str, Any], value: dict[str, Any]
) -> None:
    async with served(says(value)) as provider:
        settings = {**config(provider), "retries": {"attempts": 1}}
        told, entries, book = await asked(settings, body, path)
    assert told.status == 502
    aside = entries[1]
    assert (aside.purpose, aside.usage_from) == ("attempt", "provider")
    usage = value["usage"]
    read = usage.get("prompt_tokens", usage.get("input_tokens"))
    wrote = usage.get("completion_tokens", usage.get("output_tokens"))
    assert aside.cost_nusd == 1_000 * read + 2_000 * wrote
    assert await standing(book, "key", "k") == [(aside.cost_nusd, 0)]


async def test_a_stream_that_fails_before_it_has_content_is_billed_as_it_says() -> None:
    async with served(streams({"type": "response.failed", "response": BROKEN})) as provider:
        settings = {**config(provider), "retries": {"attempts": 1}}
        told, entries, book = await asked(settings, {**RESPONSES, "stream": True}, "/v1/responses")
    assert told.status == 502
    assert entries[1].cost_nusd == 1_000 * 10 + 2_000 * 1000
    assert await standing(book, "key", "k") == [(entries[1].cost_nusd, 0)]


@pytest.mark.parametrize("stream", [False, True])
async def test_it_is_billed_at_the_tier_that_was_told(stream: bool) -> None:
    broken = {**BROKEN, "service_tier": "priority"}
    failed = streams({"type": "response.failed", "response": broken})
    async with served(failed if stream else says(broken)) as provider:
        settings = {**config(provider), "retries": {"attempts": 1}}
        settings["models"]["m"]["targets"][0]["price"] |= {"priority_factor": 2}
        _, entries, _ = await asked(settings, {**RESPONSES, "stream": stream}, "/v1/responses")
    assert entries[1].cost_nusd == 2 * (1_000 * 10 + 2_000 * 1000)


async def test_a_whole_reply_in_place_of_a_stream_is_billed_too() -> None:
    told = {**with_choice(finish_reason="error"), "service_tier": "priority"}
    async with served(says(told)) as provider:
        settings = {**config(provider), "retries": {"attempts": 1}}
        settings["models"]["m"]["targets"][0]["price"] |= {"priority_factor": 2}
        _, entries, _ = await asked(settings, {**CHAT, "stream": True}, "/v1/chat/completions")
    read, wrote = told["usage"]["prompt_tokens"], told["usage"]["completion_tokens"]
    assert entries[1].cost_nusd == 2 * (1_000 * read + 2_000 * wrote)


async def test_garbage_may_have_been_billed() -> None:
    async with served(says("<html>")) as provider:
        settings = {**config(provider), "retries": {"attempts": 1}}
        told, entries, book = await asked(settings, CHAT, "/v1/chat/completions")
    assert told.status == 502
    assert (entries[1].purpose, entries[1].usage_from) == ("attempt", "estimated")
    cost = entries[1].cost_nusd
    assert cost is not None and 0 < cost < 100_000
    assert await standing(book, "key", "k") == [(cost, 0)]


async def ends_early(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + b"0\r\n\r\n")


async def no_json(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + framed(b"data: <html>\n\n"))


async def an_error(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + framed(b'data: {"error": {"message": "no"}}\n\n'))


@pytest.mark.parametrize(
    ("says_it", "is_paid"), [(ends_early, True), (no_json, True), (an_error, False)]
)
async def test_a_stream_without_content_may_have_been_billed_but_for_an_error(
    says_it: Answer, is_paid: bool
) -> None:
    async with served(says_it) as provider:
        settings = {**config(provider), "retries": {"attempts": 1}}
        told, entries, book = await asked(
            settings, {**CHAT, "stream": True}, "/v1/chat/completions"
        )
    assert told.status == 502 and len(entries) == 1 + is_paid
    ((used, held),) = await standing(book, "key", "k")
    assert (0 < used < 100_000) == is_paid and held == 0


async def test_an_error_told_with_a_status_of_success_costs_nothing() -> None:
    error = {"error": {"message": "no", "type": "server_error"}}
    async with served(says(error)) as provider:
        settings = {**config(provider), "retries": {"attempts": 1}}
        told, entries, book = await asked(settings, CHAT, "/v1/chat/completions")
    assert told.status == 502 and len(entries) == 1
    assert await standing(book, "key", "k") == [(0, 0)]


async def test_a_reply_that_is_too_large_is_not_bought_again() -> None:
    async with served(says(completion("x" * 5000))) as provider:
        told, entries, book = await asked(config(provider), CHAT, "/v1/chat/completions")
    assert told.status == 502 and b"4,096 bytes" in told.body
    assert len(provider.requests) == 1
    assert [one.cost_nusd for one in entries] == [None, None]
    assert entries[1].purpose == "attempt" and entries[1].attempts[0].failure == "reply_too_large"
    ((used, held),) = await standing(book, "key", "k")
    assert used >= HELD_NUSD and held == 0


async def test_another_target_may_write_less() -> None:
    async with served(says(completion("x" * 5000))) as one, served(answers()) as other:
        told, entries, book = await asked(config(one, other), CHAT, "/v1/chat/completions")
    assert told.status == 200 and len(one.requests) == len(other.requests) == 1
    assert told.headers["x-headrace-cost-usd"] == "unknown"
    ((used, held),) = await standing(book, "key", "k")
    assert used >= HELD_NUSD and held == 0 and len(entries) == 2


@pytest.mark.parametrize("size", [10, 5000])
async def test_embeddings_of_no_use_are_billed(size: int) -> None:
    value = {"data": "x" * size}
    async with served(says(value)) as provider:
        settings = {**config(provider), "retries": {"attempts": 3, "backoff_s": 0.001}}
        told, entries, book = await asked(settings, {"input": "words " * 30}, "/v1/embeddings")
    assert told.status == 502
    times = len(provider.requests)
    assert times == (1 if size > 4096 else 2)
    cost = entries[0].cost_nusd
    assert cost is not None and cost > 0 and cost % times == 0
    assert await standing(book, "key", "k") == [(cost, 0)]


QUEUED = {**BROKEN, "status": "queued", "error": None, "usage": None}


async def test_of_a_response_in_the_background_nobody_knows_the_cost() -> None:
    async with served(says(QUEUED)) as provider:
        body = {**RESPONSES, "background": True}
        told, entries, book = await asked(config(provider), body, "/v1/responses")
    assert told.status == 200 and told.json["status"] == "queued"
    assert told.headers["x-headrace-cost-usd"] == "unknown"
    assert [one.cost_nusd for one in entries] == [None]
    ((used, held),) = await standing(book, "key", "k")
    assert used >= HELD_NUSD and held == 0


async def test_a_response_in_the_background_that_is_over_costs_what_it_says() -> None:
    done = {**QUEUED, "status": "completed", "usage": USED}
    async with served(says(done)) as provider:
        body = {**RESPONSES, "background": True}
        _, entries, book = await asked(config(provider), body, "/v1/responses")
    assert [one.cost_nusd for one in entries] == [1_000 * 10 + 2_000 * 1000]
    assert await standing(book, "key", "k") == [(entries[0].cost_nusd, 0)]


async def hangs(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(5)


@pytest.mark.parametrize("background", [True, False])
async def test_a_client_that_leaves_does_not_end_it(background: bool) -> None:
    async with served(hangs) as provider:
        body = {**RESPONSES, "background": background}
        _, entries, book = await asked(
            config(provider), body, "/v1/responses", lambda: bool(provider.requests)
        )
    assert entries[0].outcome == "client_gone" and entries[0].usage_from == "estimated"
    assert (entries[0].cost_nusd is None) == background
    ((used, held),) = await standing(book, "key", "k")
    assert (used >= HELD_NUSD) == background and held == 0
