"""Identical requests under way: one asks, all are answered."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from headrace.gateway.accounts import Budget, Terms, secret_of
from headrace.gateway.cache.flights import Flight, Flights
from headrace.gateway.cache.kept import Kept
from headrace.gateway.serving.entry import Entry
from headrace.protocol.neutral.reply import ChatReply
from tests.gateway.accounts.parts import KEY, OTHER_KEY, key_record, standing
from tests.gateway.cache.test_hits import CHAT, STATE, settings
from tests.gateway.cache.test_tenants import accounts
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, answers, fails, first
from tests.gateway.upstream.scripted import served

KEPT = Kept(
    reply=ChatReply(choices=(), dialect="openai-chat", id="1", model="m"),
    at_s=1.0, model="m", target="a/m", provider="a",
)  # fmt: skip
ON = {"coalesce": True}


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_all_who_wait_get_the_answer() -> None:
    flights = Flights(5.0)
    flight = await flights.join(b"k")
    assert isinstance(flight, Flight)
    waiting = [asyncio.create_task(flights.join(b"k")) for _ in range(3)]
    other = await flights.join(b"other")
    assert isinstance(other, Flight)
    await _turns()
    flight.land(KEPT)
    assert await asyncio.gather(*waiting) == [KEPT] * 3
    flight.land(None)
    other.land(None)
    assert len(flights) == 0


async def test_one_that_fails_hands_over_to_the_next_three_times_at_most() -> None:
    flights = Flights(5.0)
    flight = await flights.join(b"k")
    waiting = [asyncio.create_task(flights.join(b"k")) for _ in range(6)]
    await _turns()
    for number in range(2):
        assert isinstance(flight, Flight)
        flight.land(None)
        await _turns()
        assert [one.done() for one in waiting] == [at <= number for at in range(6)]
        flight = waiting[number].result()
    assert isinstance(flight, Flight)
    flight.land(None)
    await _turns()
    assert [one.result() for one in waiting[2:]] == [None] * 4, "each asks for itself"
    assert len(flights) == 0


async def test_who_goes_in_the_moment_it_is_handed_over_hands_it_on() -> None:
    flights = Flights(5.0)
    flight = await flights.join(b"k")
    assert isinstance(flight, Flight)
    goes, stays = [asyncio.create_task(flights.join(b"k")) for _ in range(2)]
    await _turns()
    flight.land(None)
    goes.cancel()
    await _turns()
    assert goes.cancelled()
    following = stays.result()
    assert isinstance(following, Flight)
    following.land(KEPT)
    assert len(flights) == 0


async def test_who_waits_too_long_asks_itself() -> None:
    flights = Flights(0.01)
    flight = await flights.join(b"k")
    assert await flights.join(b"k") is None
    assert isinstance(flight, Flight)
    flight.land(None)
    assert len(flights) == 0, "who gave up is not handed anything"


def after(gate: asyncio.Event, answer: Answer) -> Answer:
    """The same answer, once the gate is open."""

    async def waits(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await answer(number, request, writer)

    return waits


async def _arrived(flights: Flights, waiters: int) -> None:
    """Until so many wait for the one flight."""
    for _ in range(2000):
        if [len(one.waiters) for one in flights._by_key.values()] == [waiters]:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("they do not wait")


async def test_a_burst_costs_one_request_and_all_are_told_in_their_own_form() -> None:
    entries: list[Entry] = []
    gate = asyncio.Event()
    async with served(after(gate, answers("Hello there"))) as provider:
        built = gateway(settings(provider.origin, cache=ON), entries)
        assert built.serving.cache is not None and built.serving.cache.flights is not None
        flights = built.serving.cache.flights
        asked = [
            asyncio.create_task(ask(built.app, {**CHAT, "stream": at % 2 == 1})) for at in range(20)
        ]
        await _arrived(flights, 19)
        gate.set()
        told = await asyncio.gather(*asked)
        assert len(provider.requests) == 1
        assert len(flights) == 0
    states = sorted(one.headers[STATE] for one in told)
    assert states == ["coalesced"] * 19 + ["miss"]
    for at, one in enumerate(told):
        text = _text_of(one, stream=at % 2 == 1)
        assert text.strip() == "Hello there"
    assert sum(one.cost_nusd or 0 for one in entries) == 18_000, "paid once"
    assert sorted(one.cache for one in entries) == [""] + ["coalesced"] * 19


def _text_of(told: Told, *, stream: bool) -> str:
    if not stream:
        return str(told.json["choices"][0]["message"]["content"])
    lines = [one[6:] for one in told.body.decode().split("\n") if one.startswith("data: {")]
    deltas = [json.loads(one)["choices"] for one in lines]
    return "".join(one[0]["delta"].get("content") or "" for one in deltas if one)


async def test_a_client_that_goes_leaves_the_question_to_the_next() -> None:
    entries: list[Entry] = []
    gate = asyncio.Event()
    async with served(after(gate, answers())) as provider:
        built = gateway(settings(provider.origin, cache=ON), entries)
        assert built.serving.cache is not None and built.serving.cache.flights is not None
        leaves = asyncio.Event()
        goes = asyncio.create_task(ask(built.app, CHAT, goes_when=leaves.is_set))
        while not provider.requests:
            await asyncio.sleep(0.001)
        stay = [asyncio.create_task(ask(built.app, CHAT)) for _ in range(3)]
        await _arrived(built.serving.cache.flights, 3)
        leaves.set()
        await goes
        await _arrived(built.serving.cache.flights, 2)
        gate.set()
        told = await asyncio.gather(*stay)
        assert len(provider.requests) == 2
    assert sorted(one.headers[STATE] for one in told) == ["coalesced", "coalesced", "miss"]
    assert sorted(one.outcome for one in entries) == ["answered"] * 3 + ["client_gone"]


async def test_after_a_failure_the_next_asks() -> None:
    gate = asyncio.Event()
    async with served(after(gate, first(fails(400, "no"), answers()))) as provider:
        built = gateway(settings(provider.origin, cache=ON), [])
        assert built.serving.cache is not None and built.serving.cache.flights is not None
        asked = [asyncio.create_task(ask(built.app, CHAT)) for _ in range(4)]
        await _arrived(built.serving.cache.flights, 3)
        gate.set()
        told = await asyncio.gather(*asked)
        assert len(provider.requests) == 2
    assert sorted(one.status for one in told) == [200, 200, 200, 400]


async def test_only_the_same_tenant_waits_and_only_for_what_is_kept() -> None:
    gate = asyncio.Event()
    body: dict[str, Any] = {**CHAT, "max_tokens": 10}
    async with served(after(gate, answers())) as provider:
        known = accounts(key_record(), key_record(id="l", secrets=(secret_of(OTHER_KEY),)))
        app = gateway(settings(provider.origin, cache=ON), [], accounts=known).app
        asked = [
            asyncio.create_task(ask(app, one, headers={"authorization": f"Bearer {key}"}))
            for key in (KEY, OTHER_KEY)
            for one in (body, {**body, "temperature": 1})
        ]
        while len(provider.requests) < 4:
            await asyncio.sleep(0.001)
        gate.set()
        told = await asyncio.gather(*asked)
    assert [one.headers[STATE] for one in told] == ["miss", "store-off"] * 2


async def test_who_waits_holds_its_budget_and_pays_nothing() -> None:
    # Room for two of them at once, not for three.
    terms = Terms(budgets=(Budget(amount=200_000, window="1d"),))
    gate = asyncio.Event()
    entries: list[Entry] = []
    headers = {"authorization": f"Bearer {KEY}"}
    async with served(after(gate, answers())) as provider:
        known = accounts(key_record(terms=terms))
        built = gateway(settings(provider.origin, cache=ON), entries, accounts=known)
        assert built.serving.cache is not None and built.serving.cache.flights is not None
        asked = [
            asyncio.create_task(ask(built.app, {**CHAT, "max_tokens": 25}, headers=headers))
            for _ in range(2)
        ]
        await _arrived(built.serving.cache.flights, 1)
        refused = await ask(built.app, {**CHAT, "max_tokens": 25}, headers=headers)
        assert refused.status == 429
        gate.set()
        assert [one.status for one in await asyncio.gather(*asked)] == [200, 200]
        assert await standing(known, "key", "k") == [(18_000, 0)]


async def test_whatever_happens_nobody_waits_for_nobody() -> None:
    """Clients come, go and fail at random; at the end all are told and nothing is left."""
    for seed in range(60):
        source = random.Random(seed)
        flights = Flights(5.0)
        answered = 0

        async def client(flights: Flights, source: random.Random) -> None:
            nonlocal answered
            joined = await flights.join(b"%d" % source.randrange(2))
            if not isinstance(joined, Flight):
                answered += joined is not None
                return
            try:
                for _ in range(source.randrange(4)):
                    await asyncio.sleep(0)
                joined.land(KEPT if source.random() < 0.5 else None)
            finally:
                joined.land(None)

        tasks: list[asyncio.Task[None]] = []
        for _ in range(40):
            tasks.append(asyncio.create_task(client(flights, source)))
            if source.random() < 0.3:
                source.choice(tasks).cancel()
            if source.random() < 0.5:
                await asyncio.sleep(0)
        done, waiting = await asyncio.wait(tasks, timeout=2.0)
        assert not waiting and len(flights) == 0, f"seed {seed}"
        assert all(one.cancelled() or one.exception() is None for one in done)
        assert answered > 0, f"seed {seed}"
