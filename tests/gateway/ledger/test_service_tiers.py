"""What is billed at the service tier that is known, of answers that never came to their end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.tally import Tally
from headrace.protocol.neutral.event import PartDelta, ReplyStart
from headrace.protocol.neutral.usage import TokenUsage
from tests.gateway.harness import ask, gateway
from tests.gateway.hedging.slow import NEVER_S, after
from tests.gateway.openai_provider import STREAM_HEAD, answers, framed
from tests.gateway.serving.composed.models import cascade, says
from tests.gateway.upstream.scripted import served

PRICE = {"input": 1.0, "output": 2.0, "priority_factor": 2, "flex_factor": 0.5}
CHAT = {"model": "chat", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi there"}]}
# In nano-dollars a token read at PRICE; "made up" has no price and is taken for the standard one.
NUSD_BY_TIER = [(None, 1000), ("priority", 2000), ("flex", 500), ("made up", 1000)]


def settings(*origins: Any, **model: Any) -> dict[str, Any]:
    names = "ab"[: len(origins)]
    return {
        "providers": {
            name: {"base_url": f"{one}/v1", "dialect": "openai-chat"}
            for name, one in zip(names, origins, strict=True)
        },
        "models": {
            "chat": {
                "strategy": "ordered",
                "targets": [{"model": f"{name}/m", "price": PRICE} for name in names],
                **model,
            }
        },
        "retries": {"backoff_s": 0.001, "backoff_max_s": 0.002, "attempts": 2},
    }


def at_tier(tier: str | None) -> dict[str, Any]:
    return CHAT if tier is None else {**CHAT, "service_tier": tier}


def rate_nusd(entry: Entry) -> float:
    """What a token read cost; nothing was written."""
    assert entry.usage is not None and entry.usage_from == "estimated"
    assert entry.usage.input_tokens > 0 and entry.usage.completion_tokens == 0
    assert entry.cost_nusd is not None
    return entry.cost_nusd / entry.usage.input_tokens


@pytest.mark.parametrize(("tier", "nusd"), NUSD_BY_TIER)
@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_before_an_answer(tier: str | None, nusd: int, stream: bool) -> None:
    entries: list[Entry] = []
    asked = asyncio.Event()

    async def silent(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.sleep(5)

    async with served(silent) as provider:
        built = gateway(settings(provider.origin), entries)
        request = asyncio.ensure_future(ask(built.app, {**at_tier(tier), "stream": stream}))
        await asked.wait()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    (entry,) = entries
    assert entry.outcome == "client_gone" and rate_nusd(entry) == nusd


@pytest.mark.parametrize(("tier", "nusd"), NUSD_BY_TIER)
async def test_attempts_without_a_reply(tier: str | None, nusd: int) -> None:
    entries: list[Entry] = []

    async def breaks(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with served(breaks) as one, served(answers("Hello")) as other:
        told = await ask(gateway(settings(one.origin, other.origin), entries).app, at_tier(tier))
    assert told.status == 200
    (besides,) = [one for one in entries if one.purpose == "attempt"]
    assert rate_nusd(besides) == nusd


@pytest.mark.parametrize(("tier", "nusd"), NUSD_BY_TIER)
async def test_a_hedge_that_lost_before_its_answer(tier: str | None, nusd: int) -> None:
    entries: list[Entry] = []
    async with served(after(NEVER_S)) as slow, served(answers("quick")) as quick:
        hedge = {"after_ms": 15, "share": 1.0}
        built = gateway(settings(slow.origin, quick.origin, hedge=hedge), entries)
        assert (await ask(built.app, at_tier(tier))).status == 200
    (besides,) = [one for one in entries if one.purpose == "hedge"]
    assert rate_nusd(besides) == nusd


@pytest.mark.parametrize(("tier", "nusd"), NUSD_BY_TIER)
async def test_a_stage_that_was_not_waited_for(tier: str | None, nusd: int) -> None:
    entries: list[Entry] = []
    async with served(says(small=after(NEVER_S), strong="Four.")) as provider:
        file = settings(provider.origin)
        stages = cascade({"model": "small", "timeout_s": 0.1}, "strong", by="rules")
        plain = {name: [{"model": f"a/{name}", "price": PRICE}] for name in ("small", "strong")}
        built = gateway({**file, "models": {**plain, **stages}}, entries)
        told = await ask(built.app, {**at_tier(tier), "model": "auto"})
        assert told.status == 200
    (besides,) = [one for one in entries if one.purpose == "stage"]
    assert rate_nusd(besides) == nusd


@pytest.mark.parametrize("asked", [None, "auto", "default"])
async def test_a_stream_that_was_cut_after_it_told_its_tier(asked: str | None) -> None:
    entries: list[Entry] = []

    async def hangs(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        told = {
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {"content": "abc"}, "finish_reason": None}],
            "service_tier": "priority",
        }  # fmt: skip
        writer.write(STREAM_HEAD + framed(b"data: " + json.dumps(told).encode() + b"\n\n"))
        await writer.drain()
        await asyncio.sleep(5)

    async with served(hangs) as provider:
        built = gateway(settings(provider.origin), entries)
        await ask(built.app, {**at_tier(asked), "stream": True}, goes_after=1)
    (entry,) = entries
    assert entry.outcome == "client_gone" and entry.usage is not None
    assert entry.usage.output_tokens == 1
    assert entry.cost_nusd == 2 * (1000 * entry.usage.input_tokens + 2000)


def test_what_the_start_of_a_cut_stream_counted_is_kept_whole() -> None:
    early = TokenUsage(
        input_tokens=1, cache_read_tokens=2, input_audio_tokens=3, output_tokens=4,
        reasoning_tokens=500,
    )  # fmt: skip
    tally = Tally(99)
    tally.take(ReplyStart(id="", model="", usage=early))
    tally.take(PartDelta(choice=0, part=0, text="x" * 30))
    usage, usage_from = tally.usage
    assert usage_from == "estimated"
    assert (usage.prompt_tokens, usage.output_tokens, usage.reasoning_tokens) == (6, 10, 500)
