"""A model of two engines, through a whole gateway."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.gateway.building.gateway import Gateway
from headrace.gateway.explaining import explanation_of
from tests.gateway.engines.scripted_engine import ScriptedEngine
from tests.gateway.harness import ask, gateway
from tests.gateway.upstream.scripted import served
from tests.waiting import until

SYSTEM = "You are an engine among engines. " * 60


def body(*said: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": said[0] + SYSTEM}]
    messages += [{"role": roles[at % 2], "content": one} for at, one in enumerate(said)]
    return {"model": "chat", "messages": messages}


@asynccontextmanager
async def two(
    strategy: str = "prefix_aware",
) -> AsyncIterator[tuple[Gateway, ScriptedEngine, ScriptedEngine]]:
    one, other = ScriptedEngine(), ScriptedEngine()
    async with served(one.served) as at_one, served(other.served) as at_other:
        settings = {
            "providers": {
                "a": {"base_url": f"{at_one.origin}/v1", "dialect": "openai-chat"},
                "b": {"base_url": f"{at_other.origin}/v1", "dialect": "openai-chat",
                      "api_key": "env:KEY"},
            },
            "models": {"chat": {"targets": ["a/m", "b/m"], "strategy": strategy}},
        }  # fmt: skip
        built = gateway(settings, [], environ={"KEY": "engines-key"})
        assert built.pollers is not None
        try:
            yield built, one, other
        finally:
            built.close()


async def test_a_conversation_stays_with_the_engine_that_has_it() -> None:
    async with two() as (built, one, other):
        assert built.pollers is not None
        await built.pollers.read_all()
        where = {}
        for name in ("x", "y", "z", "w"):
            told = await ask(built.app, body(name))
            where[name] = told.headers["x-headrace-target"]
        assert one.chats and other.chats, "their beginnings differ, and chance spreads them"
        for name, target in where.items():
            told = await ask(built.app, body(name, "Hello", "Go on"))
            assert told.headers["x-headrace-target"] == target
        loaded = one if where["x"] == "a/m" else other
        loaded.waiting, loaded.running, loaded.kv = 9, 4, 0.9
        await built.pollers.read_all()
        told = await ask(built.app, body("x", "Hello", "Go on", "More", "And now"))
        assert told.headers["x-headrace-target"] != where["x"]


async def test_explain_shows_what_it_goes_by() -> None:
    async with two() as (built, one, _):
        assert built.pollers is not None
        one.waiting, one.running, one.kv = 1, 2, 0.5
        await built.pollers.read_all()
        raw = json.dumps(body("x")).encode()
        now_s = built.serving.clock_ns() * 1e-9
        decision = explanation_of(built, "chat", raw, now_s=now_s).decision
        reasons = {one.target.name: one.reasons[-1] for one in decision.candidates}
        assert reasons["a/m"] == (
            "prefix_aware: about 0 tokens of the prompt there; 1 waiting, 2 running, KV cache "
            "50% used"
        )
        assert reasons["b/m"].endswith("0 waiting, 0 running, KV cache 0% used")


async def test_metrics_are_read_at_the_root_with_the_engines_key() -> None:
    async with two("engine_load") as (built, one, other):
        assert built.pollers is not None
        await built.pollers.read_all()
        assert one.heads[0].startswith(b"GET /metrics HTTP/1.1\r\n")
        assert b"authorization" not in one.heads[0].lower()
        assert b"authorization: Bearer engines-key\r\n" in other.heads[0]


async def test_it_polls_while_it_runs_and_stops_with_the_gateway() -> None:
    before = asyncio.all_tasks()
    async with two() as (built, one, other):
        pollers = built.pollers
        assert pollers is not None
        pollers._interval_s = {"a": 0.005, "b": 0.005}
        built.start()
        built.start()
        assert len(asyncio.all_tasks() - before) >= 2
        await until(lambda: len(one.heads) > 2 and len(other.heads) > 2, "both polled again")

    def polls() -> bool:
        return any("_poll" in str(task.get_coro()) for task in asyncio.all_tasks() - before)

    await until(lambda: not polls(), "no task that polls")


async def test_what_cannot_be_read_is_said_once_and_nothing_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two() as (built, one, other):
        assert built.pollers is not None
        one.status = 404
        other.metrics = "<html>"
        with caplog.at_level(logging.WARNING):
            await built.pollers.read_all()
            await built.pollers.read_all()
        assert len(caplog.records) == 2
        assert "GET /metrics returned status 404" in caplog.text
        assert "lack the numbers of" in caplog.text
        assert (await ask(built.app, body("x"))).status == 200
        one.status = 200
        await built.pollers.read_all()
        one.status = 500
        caplog.clear()
        await built.pollers.read_all()
        assert len(caplog.records) == 1, "it went right in between"
    assert built.providers["a"].pool.connections == 0 or built.providers["a"].pool.resting


async def test_other_strategies_read_nothing_and_make_no_blocks() -> None:
    one = ScriptedEngine()
    async with served(one.served) as at:
        settings = {
            "providers": {"a": {"base_url": f"{at.origin}/v1", "dialect": "openai-chat"}},
            "models": {"chat": ["a/m"]},
        }
        built = gateway(settings, [])
        assert built.pollers is None and not built.router.has_engines
        built.start()
        assert (await ask(built.app, body("x"))).status == 200
        assert not one.heads
