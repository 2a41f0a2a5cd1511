"""Requests that were sent and got no answer: estimated, in the ledger as in budgets."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.tally import Tally
from headrace.protocol.neutral.event import PartDelta
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import (
    STREAM_HEAD,
    answers,
    chunk,
    fails,
    framed,
)
from tests.gateway.test_accounts_of_the_file import KEY, accounts
from tests.gateway.upstream.scripted import served

CHAT = {"model": "chat", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi there"}]}
HEADERS = {"authorization": f"Bearer {KEY}"}


def config(origin: Any, rpm: int = 1000, **provider: Any) -> dict[str, Any]:
    price = {"input": 1.0, "output": 2.0}
    return {
        "access": {"keys": {"k": {
            "key": "env:KEY", "limits": [{"rpm": rpm}], "budgets": [{"usd": 1.0, "per": "1M"}],
        }}},
        "providers": {"a": {"base_url": f"{origin}/v1", "dialect": "openai-chat", **provider}},
        "models": {"chat": [{"model": "a/m", "price": price}]},
        "retries": {"backoff_s": 0.001, "backoff_max_s": 0.002, "attempts": 3, "same_target": 3},
        "breaker": {"min_attempts": 1000},
    }  # fmt: skip


async def used(book: Accounts) -> tuple[int, int]:
    """Of the budget, in nano-dollars, and of the requests a minute; nothing is held any more."""
    readings = await book.readings("key", "k")
    assert all(one.held == 0 for one in readings)
    (budget,) = [one for one in readings if one.meter.is_budget]
    (rpm,) = [one for one in readings if one.meter.limit_name == "rpm"]
    return budget.used, rpm.used


async def silent(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(5)


async def breaks(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_before_an_answer_keeps_neither_limit_nor_money(stream: bool) -> None:
    entries: list[Entry] = []
    async with served(silent) as provider:
        file = config(provider.origin, rpm=3)
        book = await accounts(file)
        built = gateway(file, entries, accounts=book)
        told = []
        for n in (1, 2, 3):
            body = {**CHAT, "stream": stream}

            def sent(n: int = n) -> bool:
                return len(provider.requests) == n

            told.append(await ask(built.app, body, headers=HEADERS, goes_when=sent))
        refused = await ask(built.app, CHAT, headers=HEADERS)
        assert not any(one.status for one in told) and refused.status == 429
        assert len(provider.requests) == 3
        built.close()
    for one in entries[:3]:
        assert (one.outcome, one.target, one.provider) == ("client_gone", "a/m", "a")
        assert [made.target for made in one.attempts] == ["a/m"]
        assert one.usage is not None and one.usage_from == "estimated"
        assert one.usage.input_tokens > 0 and one.usage.output_tokens == 0
        assert one.cost_nusd == 1000 * one.usage.input_tokens
    assert await used(book) == (sum(one.cost_nusd or 0 for one in entries), 3)


@pytest.mark.parametrize(
    ("answer", "provider", "kind"),
    [(silent, {"timeouts": {"first_token_s": 0.1}}, "timeout"), (breaks, {}, "network")],
)
async def test_attempts_without_a_reply_have_lines_of_their_own(
    answer: Any, provider: dict[str, Any], kind: str
) -> None:
    entries: list[Entry] = []
    async with served(answer) as there:
        file = config(there.origin, rpm=2, **provider)
        book = await accounts(file)
        built = gateway(file, entries, accounts=book)
        statuses = [(await ask(built.app, CHAT, headers=HEADERS)).status for _ in range(4)]
        assert statuses[0] >= 500 and statuses[2:] == [429, 429]
        assert len(there.requests) == 6
        built.close()
    main = [one for one in entries if not one.purpose and one.outcome == "failed"]
    besides = [one for one in entries if one.purpose]
    assert len(main) == 2 and all(one.usage is None for one in main)
    assert [one.purpose for one in besides] == ["attempt"] * 6
    assert {one.attempts[0].failure for one in besides} == {kind}
    assert all(one.usage_from == "estimated" and one.cost_nusd for one in besides)
    assert await used(book) == (sum(one.cost_nusd or 0 for one in besides), 2)


async def test_an_error_of_the_provider_costs_a_request_and_no_money() -> None:
    entries: list[Entry] = []
    async with served(fails(500)) as provider:
        file = config(provider.origin)
        book = await accounts(file)
        built = gateway(file, entries, accounts=book)
        assert (await ask(built.app, CHAT, headers=HEADERS)).status == 502
        built.close()
    (entry,) = entries
    assert entry.usage is None and len(entry.attempts) == 3
    assert await used(book) == (0, 1)


async def test_where_nothing_could_be_sent_all_is_given_back() -> None:
    file = config("http://127.0.0.1:9")
    book = await accounts(file)
    entries: list[Entry] = []
    built = gateway(file, entries, accounts=book)
    assert (await ask(built.app, CHAT, headers=HEADERS)).status >= 500
    assert len(entries) == 1 and await used(book) == (0, 0)
    built.close()


async def test_budgets_are_the_sum_of_the_ledger_wherever_clients_leave() -> None:
    source = random.Random(7)

    async def slow(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(source.choice((0.0, 0.004, 0.012)))
        kind = source.random()
        if kind < 0.15:
            await fails(500)(number, request, writer)
        elif kind < 0.3:
            writer.close()
        elif kind < 0.4 and b'"stream": true' in request:
            writer.write(STREAM_HEAD + framed(chunk({"content": "half"})))
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.close()
        else:
            await answers("one two three")(number, request, writer)

    entries: list[Entry] = []
    async with served(slow) as provider:
        file = config(provider.origin, timeouts={"first_token_s": 0.1})
        book = await accounts(file)
        built = gateway(file, entries, accounts=book)

        async def leaves(after_s: float, stream: bool) -> None:
            request = asyncio.ensure_future(
                ask(built.app, {**CHAT, "stream": stream}, headers=HEADERS)
            )
            await asyncio.wait([request], timeout=after_s)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)

        for _ in range(12):
            await asyncio.gather(
                *(leaves(source.uniform(0.0, 0.06), source.random() < 0.5) for _ in range(5))
            )
        await asyncio.sleep(0.05)
        built.close()
    main = [one for one in entries if not one.purpose]
    parents = {one.parent for one in entries if one.purpose}
    sent = [
        one
        for one in main
        if one.usage is not None or one.id in parents or any(made.status for made in one.attempts)
    ]
    budget, rpm = await used(book)
    assert len({one.id for one in main}) == len(main)
    assert budget == sum(one.cost_nusd or 0 for one in entries) > 0
    assert len(sent) == rpm


def test_what_was_seen_of_a_cut_answer_is_estimated_by_bytes() -> None:
    tally = Tally(5)
    tally.take(PartDelta(choice=0, part=0, text="\u6c34" * 4000))
    usage, usage_from = tally.usage
    assert (usage.output_tokens, usage_from) == (4000, "estimated")
