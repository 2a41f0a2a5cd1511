"""Copies of requests for a shadow, through a whole gateway."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from headrace.gateway.assemble import Current
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.routing.shadow import Shadow
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.hedging.slow import NEVER_S, after
from tests.gateway.openai_provider import answers, body_of, fails
from tests.gateway.test_accounts_of_the_file import KEY, SOURCES, accounts
from tests.gateway.test_serving import CHAT, PRICE, settings
from tests.gateway.upstream.scripted import served
from tests.waiting import until


def shadowed(real: Any, copy: Any, provider: dict[str, Any] | None = None, **shadow: Any) -> Any:
    """A model at `real` with a shadow at `copy`."""
    found = settings(real)
    found["providers"]["s"] = {"base_url": f"{copy}/v1", "dialect": "openai-chat",
                               **(provider or {})}  # fmt: skip
    target = {"model": "s/big", "price": PRICE}
    found["models"]["chat"]["shadow"] = {"target": target, **shadow}
    return found


def shadow_of(built: Gateway) -> Shadow:
    found = built.router.routes["chat"].shadow
    assert found is not None
    return found


async def told_all(built: Gateway) -> None:
    """Every copy is over."""
    assert built.serving.shadows is not None
    for _ in range(500):
        if not shadow_of(built).counts.in_flight:
            return
        await asyncio.sleep(0.002)
    raise AssertionError("a copy is still under way")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_copy_goes_out_and_is_paid_by_nobody(stream: bool) -> None:
    entries: list[Entry] = []
    async with served(answers("real")) as real, served(answers("copy of it")) as copy:
        built = gateway(shadowed(real.origin, copy.origin), entries)
        told = await ask(built.app, {**CHAT, "stream": stream})
        assert b"real" in told.body and b"copy" not in told.body
        await told_all(built)
        sent = body_of(copy.requests[0])
        assert sent["model"] == "big" and sent["messages"] == CHAT["messages"]
        assert shadow_of(built).counts == (0, 1, 0, 0, 0)
    entry, line = entries
    assert (line.purpose, line.parent, line.id) == ("shadow", entry.id, f"{entry.id}/1")
    assert (line.key, line.target, line.outcome) == ("shadow", "s/big", "answered")
    assert line.usage is not None and line.usage.prompt_tokens == 12
    assert line.cost_nusd == 18_000 and line.finish == "stop"


async def test_a_slow_shadow_delays_nothing_and_more_than_it_may_have_are_dropped() -> None:
    entries: list[Entry] = []
    async with served(answers("real")) as real, served(after(NEVER_S)) as copy:
        built = gateway(shadowed(real.origin, copy.origin, max_in_flight=2), entries)
        for _ in range(5):
            assert (await ask(built.app, CHAT)).status == 200
        assert shadow_of(built).counts == (2, 0, 0, 3, 0)
        await until(lambda: len(copy.requests) == 2, "both copies sent")
        began_s = time.monotonic()
        await Current(built).drain(0.02)
        assert time.monotonic() - began_s < 5
        assert shadow_of(built).counts == (0, 0, 2, 3, 0)
        assert built.providers["s"].pool.connections == 0
    lines = [one for one in entries if one.purpose == "shadow"]
    assert len(lines) == 2 and {one.outcome for one in lines} == {"client_gone"}
    assert all(one.usage_from == "estimated" and one.cost_nusd for one in lines)


async def test_copies_of_a_configuration_before_are_waited_for_as_well() -> None:
    entries: list[Entry] = []
    late = after(0.05, answers("copy"))
    async with served(answers("real")) as real, served(late) as copy:
        built = gateway(shadowed(real.origin, copy.origin), entries)
        current = Current(built)
        await ask(built.app, CHAT)
        await until(lambda: copy.requests, "the copy sent")
        current.replace(gateway(shadowed(real.origin, copy.origin), entries))
        await current.drain(5)
        assert shadow_of(built).counts == (0, 1, 0, 0, 0)
    assert [one.outcome for one in entries] == ["answered", "answered"]


async def test_its_time_is_bounded_and_its_failure_is_nobodys() -> None:
    entries: list[Entry] = []
    async with served(answers("real")) as real, served(fails(500)) as copy:
        built = gateway(shadowed(real.origin, copy.origin), entries)
        for _ in range(8):
            assert (await ask(built.app, CHAT)).status == 200
            await told_all(built)
        shadow = shadow_of(built)
        assert shadow.counts == (0, 0, 8, 0, 0)
        assert shadow.target.health.failures == 0 and shadow.target.health.in_flight == 0
    assert not [one for one in entries if one.purpose], "a refused copy costs nothing"
    async with served(answers("real")) as real, served(after(NEVER_S)) as copy:
        built = gateway(shadowed(real.origin, copy.origin, timeout_s=0.3), entries)
        await ask(built.app, CHAT)
        await told_all(built)
        assert shadow_of(built).counts.failed == 1
    assert entries[-1].error == "no whole answer within 0.3 s"


@pytest.mark.parametrize(
    ("policy", "provider", "goes"),
    [
        ({}, {}, True),
        ({"zero_retention": True}, {}, False),
        ({"zero_retention": True}, {"zero_retention": True}, True),
        ({"data_collection": "deny"}, {"keeps_data": True}, False),
        ({"regions": ["eu"]}, {"region": "us"}, False),
        ({"regions": ["eu"]}, {"region": "eu"}, True),
    ],
)
async def test_the_callers_data_policy_holds_for_the_shadow(
    policy: dict[str, Any], provider: dict[str, Any], goes: bool
) -> None:
    entries: list[Entry] = []
    async with served(answers("real")) as real, served(answers("copy")) as copy:
        config = shadowed(real.origin, copy.origin, provider)
        config["providers"]["a"] |= {"zero_retention": True, "keeps_data": False, "region": "eu"}
        config["access"] = {"keys": {"k": {"key": "env:KEY", **policy}}}
        config["models"]["chat"]["shadow"]["max_in_flight"] = 1
        built = gateway(
            config, entries, accounts=await accounts(config), environ=dict(SOURCES.environ)
        )
        told = await ask(built.app, CHAT, headers={"authorization": f"Bearer {KEY}"})
        assert told.status == 200, told.body
        await told_all(built)
        assert bool(copy.requests) is goes
        assert shadow_of(built).counts.left_out == (0 if goes else 1)
    assert entries[0].key == "k"
    assert [one.key for one in entries[1:]] == (["shadow"] if goes else [])


async def test_what_acts_at_a_provider_is_not_sent_twice() -> None:
    entries: list[Entry] = []
    async with served(answers("real")) as real, served(answers("copy")) as copy:
        built = gateway(shadowed(real.origin, copy.origin), entries)
        await ask(built.app, {**CHAT, "web_search_options": {}})
        assert shadow_of(built).counts.left_out == 1 and not copy.requests


async def test_only_a_share_and_only_what_was_answered() -> None:
    entries: list[Entry] = []
    async with served(answers("real")) as real, served(answers("copy")) as copy:
        built = gateway(shadowed(real.origin, copy.origin, share=0.3), entries)
        for _ in range(60):
            await ask(built.app, CHAT)
            await told_all(built)
        assert 6 <= len(copy.requests) <= 31, "18 are expected"
    async with served(fails(400)) as real, served(answers("copy")) as copy:
        built = gateway(shadowed(real.origin, copy.origin), entries)
        assert (await ask(built.app, CHAT)).status == 400
        assert not copy.requests and shadow_of(built).counts.in_flight == 0
