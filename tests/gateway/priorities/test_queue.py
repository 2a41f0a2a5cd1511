"""Requests that wait for a busy target, the most urgent first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.building.accounts import records_of
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.routing.turns import Turns
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.access import AccessSettings, KeySettings, TeamSettings
from headrace.gateway.settings.secret import Sources
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import body_of, completion, reply
from tests.gateway.upstream.scripted import Scripted, served

KEYS = {
    name: f"hr-key-{name}-0123456789abcdef0123456789" for name in ("high", "normal", "low", "seven")
}
ACCESS = AccessSettings(
    teams={"slow": TeamSettings(priority="low")},
    keys={
        "high": KeySettings(key=KEYS["high"], priority="high"),
        "normal": KeySettings(key=KEYS["normal"]),
        "low": KeySettings(key=KEYS["low"], team="slow"),
        "seven": KeySettings(key=KEYS["seven"], priority=7),
    },
)


class Busy:
    """A gateway in front of a provider that answers one request each time it is let."""

    def __init__(
        self, settings: dict[str, Any], provider: Scripted, let: asyncio.Semaphore
    ) -> None:
        self.provider = provider
        self._let = let
        self.entries: list[Entry] = []
        accounts = Accounts(
            MemoryCounters(),
            now_ns=lambda: 10**18,
            random_bytes=lambda count: bytes(count),
            configured=records_of(ACCESS, Sources({}, Path())),
        )
        self.gateway: Gateway = gateway(settings, self.entries, accounts=accounts)

    @property
    def turns(self) -> Turns:
        found = self.gateway.router.turns
        assert found is not None
        return found

    def ask(self, key: str, said: str, **more: Any) -> asyncio.Task[Told]:
        body = {"model": "chat", "messages": [{"role": "user", "content": said}], **more}
        headers = {"authorization": f"Bearer {KEYS[key]}"}
        return asyncio.ensure_future(ask(self.gateway.app, body, headers=headers))

    def answer_one(self) -> None:
        self._let.release()

    async def at_provider(self, count: int) -> None:
        """Returns when so many came there."""
        await self._until(lambda: len(self.provider.requests) == count)

    async def waiting(self, count: int) -> None:
        """Returns when so many wait."""
        await self._until(lambda: self.turns.waiting == count)

    def said(self) -> list[str]:
        """What the provider was asked, in order."""
        return [body_of(one)["messages"][0]["content"] for one in self.provider.requests]

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.002)


def checked(check: Callable[[Busy], Awaitable[None]], **queue: Any) -> None:
    async def run() -> None:
        let = asyncio.Semaphore(0)

        async def answer(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
            await let.acquire()
            writer.write(reply(200, completion("Hello")))

        async with served(answer) as provider:
            settings = {
                "providers": {"p": str(provider.origin)},
                "errors": {"detail": "full"},
                "models": {"chat": [{"model": "p/m", "max_in_flight": 1}]},
                "queue": queue,
            }
            await check(Busy(settings, provider, let))
            for _ in range(100):
                let.release()

    asyncio.run(run())


def test_the_most_urgent_go_first_and_equals_in_their_order() -> None:
    async def check(busy: Busy) -> None:
        asked = [busy.ask("normal", "first")]
        await busy.at_provider(1)
        order = ("seven", "low", "normal", "high", "normal", "high")
        for number, key in enumerate(order):
            asked.append(busy.ask(key, f"{key} {number}"))
            await busy.waiting(number + 1)
        for number in range(len(asked)):
            busy.answer_one()
            if number + 2 <= len(asked):
                await busy.at_provider(number + 2)
        assert {one.status for one in await asyncio.gather(*asked)} == {200}
        assert busy.said() == [
            "first", "high 3", "high 5", "normal 2", "normal 4", "low 1", "seven 0",
        ]  # fmt: skip
        assert busy.turns.waiting == 0
        # Waiting for a turn is no work of the gateway's.
        assert max(one.overhead_us for one in busy.entries) < 1_000_000

    checked(check)


def test_a_queue_that_is_full_refuses_but_for_who_is_more_urgent() -> None:
    async def check(busy: Busy) -> None:
        first = busy.ask("normal", "first")
        await busy.at_provider(1)
        waits = [busy.ask("normal", "second")]
        await busy.waiting(1)
        waits.append(busy.ask("low", "third"))
        await busy.waiting(2)
        refused = await busy.ask("low", "fourth")
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert "the queue is full with 2 requests" in refused.json["error"]["message"]
        urgent = busy.ask("high", "fifth")
        displaced = await waits[1]
        assert displaced.status == 503
        assert "higher priority" in displaced.json["error"]["message"]
        for count in (2, 3):
            busy.answer_one()
            await busy.at_provider(count)
        busy.answer_one()
        told = await asyncio.gather(first, urgent, waits[0])
        assert {one.status for one in told} == {200}
        assert busy.said() == ["first", "fifth", "second"]

    checked(check, most=2)


def test_who_waits_too_long_is_refused() -> None:
    async def check(busy: Busy) -> None:
        first = busy.ask("normal", "first")
        await busy.at_provider(1)
        late = await busy.ask("high", "second")
        assert late.status == 503
        assert "at its limit of concurrent requests for 0.05 s" in late.json["error"]["message"]
        busy.answer_one()
        assert (await first).status == 200
        assert busy.turns.waiting == 0

    checked(check, wait_s=0.05)


def test_a_client_that_goes_leaves_the_queue() -> None:
    async def check(busy: Busy) -> None:
        first = busy.ask("normal", "first")
        await busy.at_provider(1)
        body = {"model": "chat", "messages": [{"role": "user", "content": "second"}]}
        headers = {"authorization": f"Bearer {KEYS['high']}"}
        await ask(
            busy.gateway.app, body, headers=headers, goes_when=lambda: busy.turns.waiting == 1
        )
        assert busy.turns.waiting == 0
        third = busy.ask("normal", "third")
        await busy.waiting(1)
        busy.answer_one()
        await busy.at_provider(2)
        busy.answer_one()
        assert [(await one).status for one in (first, third)] == [200, 200]
        assert busy.said() == ["first", "third"]

    checked(check)


def test_a_place_whose_promise_nobody_takes_goes_to_the_next() -> None:
    async def check(busy: Busy) -> None:
        asked = [busy.ask("normal", "first")]
        await busy.at_provider(1)
        gone = busy.ask("high", "second")
        await busy.waiting(1)
        asked.append(busy.ask("normal", "third"))
        await busy.waiting(2)
        # In the very turn of the loop in which the place is promised, its client goes.
        health = busy.gateway.router.routes["chat"].targets[0].health
        on_free = health.on_free
        assert on_free is not None

        def and_goes(freed: Any) -> None:
            on_free(freed)
            gone.cancel()

        health.on_free = and_goes
        busy.answer_one()
        await busy.at_provider(2)
        busy.answer_one()
        assert {one.status for one in await asyncio.gather(*asked)} == {200}
        assert busy.said() == ["first", "third"]
        assert health.in_flight == 0 and not busy.turns._promised

    checked(check)


@pytest.mark.parametrize("most", [1, 3])
def test_a_target_never_has_more_than_it_may(most: int) -> None:
    async def run() -> None:
        now = peak = 0

        async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
            nonlocal now, peak
            now += 1
            peak = max(peak, now)
            await asyncio.sleep(0.001)
            now -= 1
            writer.write(reply(200, completion("Hello")))

        async with served(answer) as provider:
            settings = {
                "providers": {"p": str(provider.origin)},
                "models": {"chat": [{"model": "p/m", "max_in_flight": most}]},
                "queue": {"max_requests": 500},
            }
            entries: list[Entry] = []
            made = gateway(settings, entries)
            body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
            told = await asyncio.gather(*(ask(made.app, body) for _ in range(60)))
        assert {one.status for one in told} == {200}
        assert peak == most

    asyncio.run(run())


def test_targets_are_told_the_keys_priority_whatever_the_client_says() -> None:
    async def run() -> None:
        async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
            writer.write(reply(200, completion("Hello")))

        async with served(answer) as provider:
            settings = {
                "providers": {"p": str(provider.origin)},
                "models": {"chat": [{"model": "p/m", "pass_priority": True}]},
                "queue": {},
            }
            busy = Busy(settings, provider, asyncio.Semaphore(0))
            for key, told in (("high", {}), ("low", {"priority": -100}), ("normal", {})):
                assert (await busy.ask(key, "Hi", **told)).status == 200
            message = {"model": "chat", "max_tokens": 5,
                       "messages": [{"role": "user", "content": "Hi"}]}  # fmt: skip
            headers = {"x-api-key": KEYS["seven"]}
            await ask(busy.gateway.app, message, path="/v1/messages", headers=headers)
        assert [body_of(one)["priority"] for one in provider.requests] == [-1, 1, 0, 7]

    asyncio.run(run())


def test_a_provider_that_takes_no_priority_is_told_at_the_start() -> None:
    settings = {
        "providers": {"anthropic": {"api_key": ["k"]}},
        "models": {"chat": [{"model": "anthropic/m", "pass_priority": True}]},
    }
    with pytest.raises(ConfigError, match="pass_priority: anthropic does not speak"):
        gateway(settings, [])
