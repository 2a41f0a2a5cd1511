"""Limits of what costs nothing, and of who has no key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.counters import Wanted
from headrace.gateway.accounts.key import secret_of
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.accounts.meter import meters_of
from headrace.gateway.accounts.records import KeyRecord, Records
from headrace.gateway.accounts.terms import Limits, Terms
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, answers, fails
from tests.gateway.upstream.scripted import Scripted, served

KEYS = {name: f"hr-key-{name}-0123456789abcdef0123456789" for name in ("a", "b")}
FREE, PAID = {"input": 0, "output": 0}, {"input": 1, "output": 2}
# 22:00 UTC, two hours before the day's end.
NOW_S = 1_789_941_600


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def now_ns(self) -> int:
        return self.now_s * 10**9


def accounts(clock: Clock, counters: MemoryCounters | None = None) -> Accounts:
    records = Records(
        keys=tuple(KeyRecord(id=name, secrets=(secret_of(key),)) for name, key in KEYS.items())
    )
    return Accounts(
        counters or MemoryCounters(),
        now_ns=clock.now_ns,
        random_bytes=lambda count: bytes(count),
        configured=records,
    )


class Asking:
    """A gateway, asked from addresses."""

    def __init__(self, settings: dict[str, Any], clock: Clock) -> None:
        self.entries: list[Entry] = []
        self.gateway = gateway(
            settings, self.entries, accounts=accounts(clock), wall_s=lambda: float(clock.now_s)
        )

    async def ask(
        self, key: str | None = None, address: str = "203.0.113.7", model: str = "chat"
    ) -> Told:
        headers = {} if key is None else {"authorization": f"Bearer {KEYS[key]}"}
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self.gateway.app({**scope, "client": (address, 4711)}, receive, send)

        return await ask(app, body, headers=headers)


def checked(
    check: Callable[[Asking, Scripted, Clock], Awaitable[None]],
    settings: Callable[[str], dict[str, Any]],
    answer: Answer | None = None,
) -> None:
    async def run() -> None:
        clock = Clock()
        async with served(answer or answers()) as provider:
            await check(Asking(settings(str(provider.origin)), clock), provider, clock)

    asyncio.run(run())


def free(url: str, **more: Any) -> dict[str, Any]:
    return {
        "providers": {"p": url},
        "models": {"chat": [{"model": "p/m", "price": FREE}]},
        "free_tier": {"rpm": 2, "rpd": 3},
        **more,
    }


@pytest.mark.load
def test_a_key_has_so_many_a_minute_and_a_day() -> None:
    async def check(asking: Asking, provider: Scripted, clock: Clock) -> None:
        async def statuses(count: int) -> list[int]:
            # Each from another address, which has limits of its own.
            return [
                (await asking.ask("a", f"198.51.100.{len(asking.entries)}")).status
                for _ in range(count)
            ]

        assert await statuses(3) == [200, 200, 429]
        told = await asking.ask("a", "198.51.100.200")
        message = told.json["error"]["message"]
        assert "key 'a': free_rpm of 2 requests in the last minute" in message
        assert 0 < int(told.headers["retry-after"]) <= 61
        clock.now_s += 62
        assert await statuses(2) == [200, 429]
        told = await asking.ask("a", "198.51.100.201")
        assert "free_rpd of 3 requests in this day (UTC)" in told.json["error"]["message"]
        assert 6_900 < int(told.headers["retry-after"]) <= 7_200
        assert (await asking.ask("b", "198.51.100.202")).status == 200
        clock.now_s += 7_200
        assert await statuses(1) == [200]
        assert len(provider.requests) == 5

    checked(check, free)


def test_an_engine_of_ones_own_is_no_gift() -> None:
    async def check(asking: Asking, _provider: Scripted, _clock: Clock) -> None:
        assert [(await asking.ask("a")).status for _ in range(4)] == [200] * 4

    def own(url: str) -> dict[str, Any]:
        return free(url, providers={"p": {"kind": "headrace-server", "base_url": url}})

    checked(check, own)


def test_an_address_has_limits_whatever_keys_come_from_it() -> None:
    async def check(asking: Asking, _provider: Scripted, _clock: Clock) -> None:
        assert [(await asking.ask(key)).status for key in "aba"] == [200, 200, 429]
        told = await asking.ask("b")
        assert "address '203.0.113.7': free_rpm" in told.json["error"]["message"]
        assert (await asking.ask("b", "203.0.113.8")).status == 200

    checked(check, free)


def test_only_what_was_per_says_is_counted() -> None:
    async def check(asking: Asking, _provider: Scripted, _clock: Clock) -> None:
        assert [(await asking.ask(key)).status for key in "abab"] == [200] * 4

    checked(check, lambda url: free(url, free_tier={"rpm": 2, "per": ["key"]}))


def test_what_costs_something_has_no_such_limit_and_takes_over() -> None:
    async def check(asking: Asking, _provider: Scripted, _clock: Clock) -> None:
        told = [await asking.ask("a") for _ in range(4)]
        assert [one.status for one in told] == [200] * 4
        targets = [one.headers["x-headrace-target"] for one in told]
        assert targets == ["p/free", "p/free", "p/paid", "p/paid"]

    def settings(url: str) -> dict[str, Any]:
        targets = [
            {"model": "p/free", "price": FREE, "order": 0},
            {"model": "p/paid", "price": PAID, "order": 1},
        ]
        return free(url, models={"chat": targets})

    checked(check, settings)


def test_a_price_that_nobody_knows_is_not_free() -> None:
    async def check(asking: Asking, _provider: Scripted, _clock: Clock) -> None:
        assert [(await asking.ask("a")).status for _ in range(4)] == [200] * 4

    checked(check, lambda url: free(url, models={"chat": "p/m"}))


def test_what_failed_is_not_counted() -> None:
    async def check(asking: Asking, _provider: Scripted, _clock: Clock) -> None:
        for _ in range(4):
            assert (await asking.ask("a")).status == 400
            await asyncio.sleep(0)

    checked(check, free, fails(400))


def test_openrouters_free_variants_are_reached_and_counted() -> None:
    async def check(asking: Asking, provider: Scripted, _clock: Clock) -> None:
        model = "openrouter/deepseek/deepseek-r1:free"
        told = [(await asking.ask("a", model=model)).status for _ in range(3)]
        assert told == [200, 200, 429]
        assert b'"deepseek/deepseek-r1:free"' in provider.requests[0]
        told = [
            (await asking.ask("a", model="openrouter/deepseek/deepseek-r1")).status
            for _ in range(3)
        ]
        assert told == [200] * 3

    def settings(url: str) -> dict[str, Any]:
        provider = {"kind": "openrouter", "base_url": f"{url}/api/v1", "api_key": ["k"]}
        return free(url, providers={"openrouter": provider}, models={})

    checked(check, settings)


def test_who_has_no_key_has_limits_by_address() -> None:
    async def check(asking: Asking, provider: Scripted, _clock: Clock) -> None:
        assert [(await asking.ask()).status for _ in range(3)] == [200, 200, 429]
        told = await asking.ask()
        assert "address '203.0.113.7': rpm of 2 requests" in told.json["error"]["message"]
        # All of a /64 is one client's.
        addresses = ("2001:db8::1", "2001:db8::2", "2001:db8::ffff:3", "2001:db8:0:1::1")
        told_v6 = [(await asking.ask(address=one)).status for one in addresses]
        assert told_v6 == [200, 200, 429, 200]
        assert len(provider.requests) == 5
        assert {one.key for one in asking.entries} == {"anonymous"}

    def settings(url: str) -> dict[str, Any]:
        return {
            "access": {"require_key": False, "anonymous": {"limits": [{"rpm": 2}]}},
            "providers": {"p": url},
            "models": {"chat": "p/m"},
        }

    checked(check, settings)


class SlowEnds(MemoryCounters):
    """Whose ends take a while, as over a network."""

    ended = 0

    async def end(self, *given: Any, **more: Any) -> Any:
        await asyncio.sleep(0.02)
        self.ended += 1
        return await super().end(*given, **more)


def test_holds_that_are_being_ended_are_waited_for() -> None:
    async def run() -> None:
        clock, counters = Clock(), SlowEnds()
        async with served(answers()) as provider:
            made = gateway(
                free(str(provider.origin)), [], accounts=accounts(clock, counters),
                wall_s=lambda: float(clock.now_s),
            )  # fmt: skip
            body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
            headers = {"authorization": f"Bearer {KEYS['a']}"}
            assert (await ask(made.app, body, headers=headers)).status == 200
            before = counters.ended
            assert made.is_busy
            await made.drain(5)
            assert counters.ended == before + 1 and not made.is_busy

    asyncio.run(run())


def test_a_flood_of_addresses_takes_so_much_memory_and_no_more() -> None:
    counters = MemoryCounters(most_addresses=10)
    terms = Terms(limits=(Limits(rpm=1, concurrency=5),))

    def takes(name: str, number: int) -> bool:
        wanted = [Wanted(one, 1, one.amount) for one in meters_of("address", name, terms)]
        return not counters.reserve_now(f"{name}-{number}", wanted, at_ms=number)

    assert takes("runs", 0)
    for number in range(1, 1000):
        assert takes(f"10.0.0.{number}", number)
        counters.end_now(f"10.0.0.{number}-{number}", (), reserved_ms=number, at_ms=number)
        assert len(counters._counts) <= 12
    # What a running request holds is known until it ends, and who came last is known.
    assert counters._counts["address|runs|concurrency|total|rolling|*"].held == 1
    assert not takes("10.0.0.999", 1001)
