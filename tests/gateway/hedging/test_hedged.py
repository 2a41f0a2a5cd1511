"""Requests that are hedged, through a whole gateway."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headrace.gateway.building.gateway import Gateway
from headrace.gateway.routing.decision import Candidate
from headrace.gateway.serving.demanded import demand_of
from headrace.gateway.serving.entry import Entry
from headrace.gateway.targets.target import Price
from tests.gateway.harness import ask, gateway
from tests.gateway.hedging.slow import NEVER_S, after
from tests.gateway.openai_provider import Answer, answers, fails
from tests.gateway.routing.parts import asking, target
from tests.gateway.test_serving import CHAT, PRICE, settings
from tests.gateway.upstream.scripted import Scripted, served

AT_ONCE = {"after_ms": 15, "share": 1.0}


def hedged(*origins: Any, hedge: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    found = settings(*origins, **more)
    found["models"]["chat"]["hedge"] = AT_ONCE if hedge is None else hedge
    return found


async def is_left_clean(built: Gateway) -> None:
    """No connection at work, no request at a target, no task but the test's own."""
    for _ in range(50):
        busy = [one.pool.connections - one.pool.resting for one in built.providers.values()]
        if not any(busy):
            break
        await asyncio.sleep(0.002)
    assert not any(busy)
    for route in built.router.routes.values():
        assert [one.health.in_flight for one in route.targets] == [0] * len(route.targets)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_second_answers_where_the_first_is_slow(stream: bool) -> None:
    entries: list[Entry] = []
    async with served(after(NEVER_S)) as slow, served(answers("quick")) as quick:
        built = gateway(hedged(slow.origin, quick.origin), entries)
        told = await ask(built.app, {**CHAT, "stream": stream})
        assert told.status == 200 and b"quick" in told.body
        assert told.headers["x-headrace-hedged"] == "1"
        assert told.headers["x-headrace-attempts"] == "2"
        assert told.headers["x-headrace-target"] == "b/m1"
        await is_left_clean(built)
        target = built.router.routes["chat"].targets[0]
        assert target.health.last_failure is None and target.health.state(0.0) == "closed"
        assert len(slow.requests) == len(quick.requests) == 1
    entry, aside = entries
    assert (entry.purpose, entry.target, entry.outcome) == ("", "b/m1", "answered")
    assert (aside.purpose, aside.target, aside.parent) == ("hedge", "a/m0", entry.id)
    assert aside.outcome == "client_gone" and aside.usage_from == "estimated"
    assert aside.usage is not None and aside.usage.prompt_tokens > 0
    assert aside.usage.completion_tokens == 0
    assert aside.cost_nusd == aside.usage.prompt_tokens * 1_000
    hedging = built.router.routes["chat"].hedging
    assert hedging is not None and hedging.counts == (1, 1, 0)


async def test_the_first_wins_if_it_comes_before_the_second() -> None:
    entries: list[Entry] = []
    async with served(after(0.2, answers("first"))) as one, served(after(NEVER_S)) as other:
        built = gateway(hedged(one.origin, other.origin), entries)
        told = await ask(built.app, CHAT)
        assert b"first" in told.body and "x-headrace-hedged" not in told.headers
        assert told.headers["x-headrace-attempts"] == "2"
        await is_left_clean(built)
    assert [(one.purpose, one.target) for one in entries] == [("", "a/m0"), ("hedge", "b/m1")]


async def test_who_answers_in_time_is_asked_alone() -> None:
    entries: list[Entry] = []
    async with served(answers("quick")) as one, served(answers("other")) as other:
        hedge = {"after_ms": 5000, "share": 1.0}
        built = gateway(hedged(one.origin, other.origin, hedge=hedge), entries)
        told = await ask(built.app, CHAT)
        assert b"quick" in told.body and not other.requests
    assert len(entries) == 1


async def test_a_failure_before_the_time_is_another_attempt_and_no_hedge() -> None:
    entries: list[Entry] = []
    async with served(fails(500)) as one, served(answers("other")) as other:
        hedge = {"after_ms": 5000, "share": 1.0}
        built = gateway(hedged(one.origin, other.origin, hedge=hedge), entries)
        told = await ask(built.app, CHAT)
        assert b"other" in told.body and "x-headrace-hedged" not in told.headers
    assert [one.failure for one in entries[0].attempts] == ["server", None]


async def test_the_first_is_still_waited_for_when_the_second_fails() -> None:
    entries: list[Entry] = []
    async with served(after(0.2, answers("first"))) as one, served(fails(500)) as other:
        built = gateway(hedged(one.origin, other.origin), entries)
        told = await ask(built.app, CHAT)
        assert told.status == 200 and b"first" in told.body
        await is_left_clean(built)
    (entry,) = entries
    assert [(one.target, one.failure) for one in entry.attempts] == [
        ("b/m1", "server"), ("a/m0", None),
    ]  # fmt: skip


async def test_what_the_second_refuses_the_first_may_take() -> None:
    entries: list[Entry] = []
    late = after(0.2, answers("first"))
    async with served(late) as one, served(fails(400, "no such field")) as other:
        built = gateway(hedged(one.origin, other.origin), entries)
        told = await ask(built.app, CHAT)
        assert told.status == 200 and b"first" in told.body
        await is_left_clean(built)
    assert [(one.target, one.failure) for one in entries[0].attempts] == [
        ("b/m1", "bad_request"), ("a/m0", None),
    ]  # fmt: skip


async def test_a_clients_own_fault_ends_both() -> None:
    entries: list[Entry] = []
    late = after(0.2, fails(400, "bad tool"))
    async with served(late) as one, served(after(NEVER_S)) as other:
        built = gateway(hedged(one.origin, other.origin), entries)
        told = await ask(built.app, CHAT)
        assert told.status == 400 and "bad tool" in told.json["error"]["message"]
        await is_left_clean(built)


async def test_both_fail_and_a_third_answers() -> None:
    entries: list[Entry] = []
    late = after(0.1, fails(500))
    async with served(late) as one, served(late) as two, served(answers("third")) as three:
        built = gateway(hedged(one.origin, two.origin, three.origin), entries)
        told = await ask(built.app, CHAT)
        assert b"third" in told.body and "x-headrace-hedged" not in told.headers
        await is_left_clean(built)
    assert [one.target for one in entries[0].attempts] == ["a/m0", "b/m1", "c/m2"]


async def test_hosted_tools_and_a_spent_share_ask_once() -> None:
    entries: list[Entry] = []
    async with served(after(0.03)) as one, served(answers("other")) as other:
        built = gateway(hedged(one.origin, other.origin), entries)
        told = await ask(built.app, {**CHAT, "web_search_options": {}})
        assert b"from there" in told.body and not other.requests
        few = {"after_ms": 5, "share": 0.05}
        built = gateway(hedged(one.origin, other.origin, hedge=few), entries)
        told = await ask(built.app, CHAT)
        assert b"from there" in told.body and not other.requests
        hedging = built.router.routes["chat"].hedging
        assert hedging is not None and hedging.counts == (0, 0, 1)


async def test_for_whom_no_share_is_left_is_asked_once_the_first_failed() -> None:
    entries: list[Entry] = []
    async with served(after(0.05, fails(503))) as one, served(answers("other")) as other:
        few = {"after_ms": 5, "share": 0.05}
        built = gateway(hedged(one.origin, other.origin, hedge=few), entries)
        told = await ask(built.app, CHAT)
        assert told.status == 200 and b"other" in told.body
        assert told.headers["x-headrace-attempts"] == "2"
        assert "x-headrace-hedged" not in told.headers
        hedging = built.router.routes["chat"].hedging
        assert hedging is not None and hedging.counts == (0, 0, 1)
        await is_left_clean(built)


async def test_a_client_that_goes_ends_all_of_them() -> None:
    entries: list[Entry] = []
    async with served(after(NEVER_S)) as one, served(after(NEVER_S)) as other:
        built = gateway(hedged(one.origin, other.origin), entries)
        await ask(built.app, CHAT, goes_when=lambda: bool(one.requests and other.requests))
        await is_left_clean(built)
        assert len(one.requests) == len(other.requests) == 1
    assert [(one.purpose, one.outcome) for one in entries] == [
        ("", "client_gone"), ("hedge", "client_gone"),
    ]  # fmt: skip
    assert [one.target for one in entries] == ["a/m0", "b/m1"]
    assert [one.usage_from for one in entries] == ["estimated", "estimated"]


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_the_timing_one_answer_is_told_and_all_that_was_sent_is_in_the_ledger(
    seed: int,
) -> None:
    source = random.Random(seed)
    texts = ("alpha", "beta", "gamma")

    def behaviour(text: str) -> Answer:
        delay_s = source.choice((0.0, 0.002, 0.004, 0.006, 0.012))
        kind = source.random()
        if kind < 0.2:
            return after(delay_s, fails(source.choice((429, 500, 503))))
        if kind < 0.3:
            return after(0.2, answers(text))
        return after(delay_s, answers(text))

    for number in range(15):
        entries: list[Entry] = []
        before = asyncio.all_tasks()
        async with AsyncExitStack() as stack:
            providers: list[Scripted] = [
                await stack.enter_async_context(served(behaviour(text))) for text in texts
            ]
            hedge = {"after_ms": source.choice((1, 3, 6)), "max_hedges": source.choice((1, 2)),
                     "share": 1.0}  # fmt: skip
            built = gateway(hedged(*(one.origin for one in providers), hedge=hedge), entries)
            stream = source.random() < 0.5
            leaves = source.random() < 0.2
            request = asyncio.ensure_future(ask(built.app, {**CHAT, "stream": stream}))
            if leaves:
                await asyncio.sleep(source.choice((0.001, 0.004, 0.008)))
                request.cancel()
            told = (await asyncio.gather(request, return_exceptions=True))[0]
            await is_left_clean(built)
            if not isinstance(told, BaseException) and told.status == 200:
                said = [text for text in texts if text.encode() in told.body]
                assert len(said) == 1, (seed, number, told.body)
            asked = {f"{'abc'[at]}/m{at}": len(one.requests) for at, one in enumerate(providers)}
            main = [one for one in entries if not one.purpose]
            assert len(main) == 1 and {one.parent for one in entries} <= {"", main[0].id}
            in_ledger = dict.fromkeys(asked, 0)
            for one in entries:
                for attempt in one.attempts:
                    in_ledger[attempt.target] += 1
            if main[0].outcome == "client_gone" and main[0].target is None:
                # Who was waited for first is in no line, as of any client that goes.
                missing = [name for name in asked if asked[name] > in_ledger[name]]
                assert len(missing) <= 1 and sum(asked.values()) - sum(in_ledger.values()) <= 1
            else:
                assert in_ledger == asked, (seed, number)
            priced = [one for one in entries if one.usage is not None]
            assert all(one.cost_nusd is not None for one in priced)
        for _ in range(20):
            if asyncio.all_tasks() <= before:
                break
            await asyncio.sleep(0.002)
        built.close()


async def test_cancelled_while_the_loser_is_ended_nothing_is_left() -> None:
    """The client goes in the very moment in which an answer is there."""
    for at in range(12):
        entries: list[Entry] = []
        async with served(after(0.006)) as one, served(after(0.001)) as other:
            built = gateway(hedged(one.origin, other.origin), entries)
            request = asyncio.ensure_future(ask(built.app, CHAT))
            await asyncio.sleep(0.0045 + at * 0.0005)
            for _ in range(3):
                request.cancel()
                await asyncio.sleep(0)
            await asyncio.gather(request, return_exceptions=True)
            await is_left_clean(built)
            assert len([one for one in entries if not one.purpose]) == 1
            built.close()


def test_what_hedges_may_cost_is_held_back() -> None:
    price = Price(input=1_000, output=2_000)
    candidates = tuple(
        Candidate(target(name, fixed_price=price), "m", 0.0, ()) for name in ("a/m", "b/m")
    )
    ask_of = asking(input_tokens=1_000_000, most_output_tokens=1_000_000)
    alone = demand_of(ask_of, candidates)
    assert (alone.input_tokens, alone.most_cost_nusd) == (1_000_000, 3_000)
    with_two = demand_of(ask_of, candidates, hedges=2)
    assert (with_two.input_tokens, with_two.most_cost_nusd) == (3_000_000, 5_000)
    assert with_two.most_output_tokens == 1_000_000


def test_price_of_these_tests() -> None:
    assert PRICE["input"] == 1.0, "asides cost 1,000 nano-dollars a token"


async def test_a_key_that_is_refused_while_the_hedge_wins_rests() -> None:
    refused = after(0.05, fails(401))
    async with served(refused) as one, served(after(0.1, answers("other"))) as other:
        config = hedged(one.origin, other.origin, hedge={"after_ms": 5})
        config["providers"]["a"]["api_key"] = "sk-a-0123456789"
        built = gateway(config, [])
        for _ in range(3):
            assert b"other" in (await ask(built.app, CHAT)).body
        assert len(one.requests) == 1
        built.close()
