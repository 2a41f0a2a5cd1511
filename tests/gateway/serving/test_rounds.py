"""Who is asked next: the same for chats and for embeddings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.building.accounts import records_of
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.secret import Sources
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, completion, fails, reply
from tests.gateway.priorities.test_queue import ACCESS, KEYS
from tests.gateway.test_embeddings import openai
from tests.gateway.upstream.scripted import Scripted, served

CHAT = "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}
EMBEDDINGS = "/v1/embeddings", {"input": ["Hi"]}

of_both = pytest.mark.parametrize("what", [CHAT, EMBEDDINGS], ids=["chat", "embeddings"])
What = tuple[str, dict[str, Any]]


async def at_once(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    if b"/embeddings" in request.split(b"\r\n", 1)[0]:
        await openai(number, request, writer)
    else:
        writer.write(reply(200, completion("Hello")))


def let_by(let: asyncio.Semaphore, answer: Answer = at_once) -> Answer:
    """Answers one request each time it is let."""

    async def answers(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await let.acquire()
        await answer(number, request, writer)

    return answers


def built_of(
    *providers: Scripted,
    entries: list[Entry] | None = None,
    accounts: Accounts | None = None,
    **more: Any,
) -> Gateway:
    """A gateway with one target at each provider, which may have one request at a time."""
    names = "abc"[: len(providers)]
    settings = {
        "providers": {
            name: {"base_url": f"{one.origin}/v1", "dialect": "openai-chat"}
            for name, one in zip(names, providers, strict=True)
        },
        "models": {
            "m": {
                "strategy": "ordered",
                "targets": [{"model": f"{name}/m", "max_in_flight": 1} for name in names],
            }
        },
        **more,
    }
    return gateway(settings, [] if entries is None else entries, accounts=accounts)


def asked(built: Gateway, what: What, key: str | None = None) -> asyncio.Task[Told]:
    path, body = what
    headers = {} if key is None else {"authorization": f"Bearer {KEYS[key]}"}
    return asyncio.ensure_future(ask(built.app, {"model": "m", **body}, path=path, headers=headers))


async def until_asked(provider: Scripted, count: int) -> None:
    async with asyncio.timeout(10):
        while len(provider.requests) < count:
            await asyncio.sleep(0.002)


async def until_waiting(built: Gateway, count: int) -> None:
    turns = built.router.turns
    assert turns is not None
    async with asyncio.timeout(10):
        while turns.waiting < count:
            await asyncio.sleep(0.002)


@of_both
async def test_a_busy_target_is_not_waited_for_while_another_is_free(what: What) -> None:
    let = asyncio.Semaphore(0)
    async with served(let_by(let)) as busy, served(at_once) as free:
        built = built_of(busy, free, queue={"wait_s": 60})
        first = asked(built, what)
        await until_asked(busy, 1)
        told = await asked(built, what)
        assert told.status == 200 and told.headers["x-headrace-target"] == "b/m"
        let.release()
        assert (await first).headers["x-headrace-target"] == "a/m"
        built.close()


@of_both
async def test_busy_ones_are_waited_for_once_the_others_failed(what: What) -> None:
    let = asyncio.Semaphore(0)
    async with served(let_by(let)) as busy, served(fails(500)) as bad:
        built = built_of(busy, bad, queue={"wait_s": 60})
        first = asked(built, what)
        await until_asked(busy, 1)
        second = asked(built, what)
        await until_waiting(built, 1)
        assert len(bad.requests) == 1
        let.release()
        let.release()
        told = await second
        assert told.status == 200 and told.headers["x-headrace-target"] == "a/m"
        assert told.headers["x-headrace-attempts"] == "2"
        assert (await first).status == 200
        built.close()


@of_both
async def test_whichever_is_free_first_is_asked(what: What) -> None:
    let_a, let_b = asyncio.Semaphore(0), asyncio.Semaphore(0)
    async with served(let_by(let_a)) as one, served(let_by(let_b)) as other:
        built = built_of(one, other, queue={"wait_s": 60})
        both = [asked(built, what), asked(built, what)]
        await until_asked(one, 1)
        await until_asked(other, 1)
        third = asked(built, what)
        await until_waiting(built, 1)
        let_b.release()
        let_b.release()
        assert (await third).headers["x-headrace-target"] == "b/m"
        let_a.release()
        assert [one.status for one in await asyncio.gather(*both)] == [200, 200]
        built.close()


@of_both
async def test_who_waits_too_long_is_told_of_all_that_are_busy(what: What) -> None:
    let = asyncio.Semaphore(0)
    entries: list[Entry] = []
    async with served(let_by(let)) as one, served(let_by(let)) as other:
        built = built_of(one, other, entries=entries, queue={"wait_s": 0.02})
        both = [asked(built, what), asked(built, what)]
        await until_asked(one, 1)
        await until_asked(other, 1)
        told = await asked(built, what)
        assert told.status == 503 and told.headers["retry-after"] == "1"
        said = told.json["error"]["message"]
        assert "a/m" in said and "b/m" in said, "both were waited for"
        assert told.json["error"]["code"] == "no_target_available"
        for _ in both:
            let.release()
        assert [one.status for one in await asyncio.gather(*both)] == [200, 200]
        (refused,) = [one for one in entries if one.outcome == "failed"]
        assert refused.status == 503 and not refused.attempts
        built.close()


@of_both
async def test_a_turn_that_fails_goes_on_to_the_next_who_is_busy(what: What) -> None:
    """The place is given back, and the breaker hears of it."""
    let_a, let_b = asyncio.Semaphore(0), asyncio.Semaphore(0)
    bad, good = let_by(let_a, fails(500)), let_by(let_b)
    async with served(bad) as one, served(good) as other:
        built = built_of(one, other, queue={"wait_s": 60}, retries={"same_target": 1})
        first = asked(built, what)
        await until_asked(one, 1)
        second = asked(built, what)
        await until_asked(other, 1)
        third = asked(built, what)
        await until_waiting(built, 1)
        let_a.release()  # the first goes on to the other target, and waits for it
        let_a.release()  # the third has the turn, fails, and waits as well
        await until_waiting(built, 2)
        for _ in range(3):
            let_b.release()
        told = await asyncio.gather(first, second, third)
        assert {one.status for one in told} == {200}
        assert {one.headers["x-headrace-target"] for one in told} == {"b/m"}
        for name in ("a/m", "b/m"):
            (health,) = {one.health for one in built.router.routes["m"].targets if one.name == name}
            assert health.in_flight == 0
            assert (health.failures == 2) == (name == "a/m")
        built.close()


@of_both
async def test_the_most_urgent_has_the_next_turn(what: What) -> None:
    let = asyncio.Semaphore(0)
    accounts = Accounts(
        MemoryCounters(),
        now_ns=lambda: 10**18,
        random_bytes=lambda count: bytes(count),
        configured=records_of(ACCESS, Sources({}, Path())),
    )
    async with served(let_by(let)) as provider:
        built = built_of(provider, accounts=accounts, queue={"wait_s": 60})
        waiting: list[asyncio.Task[Told]] = []
        ended: list[str] = []
        for number, key in enumerate(("normal", "low", "high")):
            waiting.append(asked(built, what, key))
            waiting[-1].set_name(key)
            waiting[-1].add_done_callback(lambda one: ended.append(one.get_name()))
            await (until_waiting(built, number) if number else until_asked(provider, 1))
        for _ in waiting:
            let.release()
        assert [one.status for one in await asyncio.gather(*waiting)] == [200] * 3
        assert ended == ["normal", "high", "low"]
        built.close()
