"""Two engines of ours behind a gateway: prefixes found again, a loaded engine passed by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from headrace.gateway.building.gateway import Gateway
from tests.gateway.harness import ask, gateway
from tests.gateway.serving.test_prompt_salt import KEYS, accounts
from tests.server.serve_process import Process, spawn
from tests.tiny import write_tiny_gguf

MODEL = "tiny"
CONTEXT = 4096
# A byte is a token of the tiny model; four blocks of the gateway's.
SYSTEM = "You are one of two engines, and you keep what you were told. " * 17
WAITING = 7


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Process]]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model"), family="qwen3", max_positions=CONTEXT)
    both = [
        spawn(path, served_model_name=[MODEL], backend="cpu", max_num_seqs=1, max_model_len=CONTEXT)
        for _ in range(2)
    ]
    try:
        yield both[0].wait_ready(), both[1].wait_ready()
    finally:
        for one in both:
            one.process.kill()
            one.wait()


def sample(url: str, name: str) -> float:
    """Of an engine's own /metrics."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(one.rpartition(" ")[2]) for one in lines if one.startswith(name + "{"))


@asynccontextmanager
async def before(engines: tuple[Process, Process]) -> AsyncIterator[Gateway]:
    settings = {
        "providers": {
            name: {"base_url": f"{one.url}/v1", "dialect": "openai-chat"}
            for name, one in zip("ab", engines, strict=True)
        },
        "models": {
            "chat": {
                "strategy": "prefix_aware",
                "targets": [f"a/{MODEL}", f"b/{MODEL}"],
                "engines": {"interval_s": 0.05},
            }
        },
    }
    built = gateway(settings, [])
    built.start()
    try:
        assert built.pollers is not None
        await built.pollers.read_all()
        yield built
    finally:
        built.close()


def conversation(name: str, *said: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": name + SYSTEM}]
    messages += [{"role": roles[at % 2], "content": one} for at, one in enumerate(said)]
    return {"model": "chat", "messages": messages, "max_tokens": 4, "temperature": 0}


async def asked(built: Gateway, body: dict[str, Any]) -> tuple[str, str]:
    """The engine that answered, and what it said."""
    told = await ask(built.app, body)
    assert told.status == 200, told.body
    said = told.json["choices"][0]["message"]["content"] or "-"
    return told.headers["x-headrace-provider"], said


@pytest.mark.process
async def test_the_second_turn_finds_its_prefix_and_a_loaded_engine_is_passed_by(
    engines: tuple[Process, Process],
) -> None:
    urls = {name: one.url for name, one in zip("ab", engines, strict=True)}
    async with before(engines) as built:
        turns: dict[str, list[str]] = {name: [name] for name in ("Ada", "Bob", "Cleo", "Dan")}
        where = {}
        for name, said in turns.items():
            where[name], answer = await asked(built, conversation(name, *said))
            said += [answer, "And then?"]
        hits = {name: sample(url, "vllm:prefix_cache_hits_total") for name, url in urls.items()}
        for name, said in turns.items():
            engine, _ = await asked(built, conversation(name, *said))
            assert engine == where[name]
        await asyncio.sleep(0.1)
        for engine, url in urls.items():
            stayed = sum(1 for one in where.values() if one == engine)
            grew = sample(url, "vllm:prefix_cache_hits_total") - hits[engine]
            assert grew >= stayed * len(SYSTEM) * 0.9, "the engine itself found the prefix again"
        async with busy(urls[where["Ada"]]):
            assert built.pollers is not None
            await built.pollers.read_all()
            engine, _ = await asked(built, conversation("Ada", *turns["Ada"]))
            assert engine != where["Ada"], "its queue is full"


@pytest.mark.process
async def test_a_key_does_not_see_what_another_has_sent(engines: tuple[Process, Process]) -> None:
    """The guess of another tenant's prompt costs as much as a prompt that nobody sent."""
    settings = {
        "providers": {"a": {"base_url": f"{engines[0].url}/v1", "kind": "headrace"}},
        "models": {"chat": [f"a/{MODEL}"]},
    }
    built = gateway(settings, [], accounts=accounts())
    body = conversation("Ann's secret. ", "Hi")

    async def cached_tokens(name: str) -> int:
        told = await ask(built.app, body, headers={"authorization": f"Bearer {KEYS[name]}"})
        details = told.json["usage"]["prompt_tokens_details"] or {}
        return int(details.get("cached_tokens", 0))

    try:
        assert await cached_tokens("ann") == 0
        assert await cached_tokens("ann") > 500
        assert await cached_tokens("bob") == 0
    finally:
        built.close()


@asynccontextmanager
async def busy(url: str) -> AsyncIterator[None]:
    """An engine with one slot and more requests than that, until it is left alone."""
    body = {"model": MODEL, "prompt": "x", "max_tokens": 3900, "ignore_eos": True, "stream": True}

    async def one(client: httpx.AsyncClient) -> None:
        async with client.stream("POST", f"{url}/v1/completions", json=body) as reply:
            async for _ in reply.aiter_bytes():
                pass

    async with httpx.AsyncClient(timeout=60) as client:
        tasks = [asyncio.ensure_future(one(client)) for _ in range(WAITING + 1)]
        try:
            async with asyncio.timeout(20):
                while await asyncio.to_thread(sample, url, "vllm:num_requests_waiting") < WAITING:
                    await asyncio.sleep(0.02)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
