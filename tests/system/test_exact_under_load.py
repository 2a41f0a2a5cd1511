"""Whatever runs beside it, a request's tokens and logprobs are those it has alone, bit for bit.

Streams of random lengths start at random moments and share prefixes; some are cancelled; the KV
pool is so small that requests are preempted and recomputed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.tiny import write_tiny_gguf
from tests.waiting import until

VOCABULARY = 256
# Streams of a server that are asked again alone, one after another; the others are its load.
CHECKED = 16

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Case:
    """One stream: its request, when it starts, and after how many tokens it is given up."""

    body: dict[str, Any]
    delay_s: float
    cancel_after: int | None


@dataclass
class Seen:
    """What a stream produced."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[dict[str, float]] = field(default_factory=list)
    finish_reason: str | None = None


def _cases(count: int, model: str, rng: random.Random) -> list[Case]:
    prefixes = [[rng.randrange(VOCABULARY) for _ in range(48)] for _ in range(3)]
    cases = []
    for index in range(count):
        own = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 40))]
        prompt = (rng.choice(prefixes) if rng.random() < 0.7 else []) + own
        body = {
            "model": model,
            "prompt": prompt,
            "max_tokens": rng.randint(24, 72),
            "temperature": rng.choice([0.0, 0.7, 1.3]),
            "top_p": rng.choice([1.0, 0.9]),
            "top_k": rng.choice([0, 20]),
            "min_p": rng.choice([0.0, 0.02]),
            "seed": index,
            "logprobs": rng.choice([0, 3]),
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
        cancel = rng.randint(1, 5) if rng.random() < 0.2 else None
        cases.append(Case(body, rng.random() * 0.03, cancel))
    return cases


async def _stream(client: httpx.AsyncClient, case: Case, *, alone: bool) -> Seen:
    seen = Seen()
    if not alone:
        await asyncio.sleep(case.delay_s)
    async with client.stream("POST", "/v1/completions", json=case.body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            for choice in event["choices"]:
                seen.token_ids += choice.get("token_ids") or []
                if choice.get("logprobs"):
                    seen.logprobs += choice["logprobs"]["token_logprobs"]
                    seen.top_logprobs += choice["logprobs"]["top_logprobs"]
                seen.finish_reason = choice["finish_reason"] or seen.finish_reason
            if not alone and case.cancel_after and len(seen.token_ids) >= case.cancel_after:
                break
    return seen


def _client(url: str, connections: int) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=connections)
    return httpx.AsyncClient(base_url=url, timeout=120, limits=limits)


async def _together(url: str, cases: list[Case]) -> list[Seen]:
    async with _client(url, len(cases)) as client:
        streams = (_stream(client, case, alone=False) for case in cases)
        return list(await asyncio.gather(*streams))


async def _alone(url: str, cases: list[Case]) -> list[Seen]:
    async with _client(url, 1) as client:
        return [await _stream(client, case, alone=True) for case in cases]


# Pools have `blocks` of 16 tokens, of half the layers each where windows alternate; the streams, of
# up to 160 tokens, need several times as many.
SHAPE = {"hidden": 128, "intermediate": 256, "layers": 3}
MODELS = {
    "all positions": ("qwen3", SHAPE),
    # Windows within a block, over a few, and in every other layer only, with softcaps.
    "window of 7": ("mistral", SHAPE | {"sliding_window": 7}),
    "window of 40": ("mistral", SHAPE | {"sliding_window": 40}),
    "alternating": ("gemma2", {"sliding_window": 40}),
    "experts": ("glm4_moe", {"n_routed_experts": 6, "num_experts_per_tok": 3}),
    "sinks": ("gpt_oss", {"sliding_window": 40}),
}
MORE_ROUNDS = 4
SHIPPED = Path(__file__).resolve().parents[2] / "models/headrace-moe/headrace-moe-q8_0.gguf"


def model_file(kind: str, codec: str, folder: Path) -> Path:
    """A tiny model, or the one of the repository."""
    if kind == "headrace-moe":
        if not SHIPPED.exists():
            pytest.skip("models/ is not here: it is in the repository, in no sdist and no wheel")
        return SHIPPED
    family, shape = MODELS[kind]
    return write_tiny_gguf(folder, family=family, codec=codec, **shape)


def at_rest(metrics: dict[str, float]) -> bool:
    return metrics["vllm:num_requests_running"] == metrics["vllm:num_requests_waiting"] == 0


@pytest.mark.parametrize(
    ("kind", "codec", "count", "blocks", "kv"),
    [
        ("all positions", "F32", 64, 24, "auto"),
        ("window of 7", "BF16", 16, 8, "auto"),
        ("window of 40", "Q8_0", 64, 24, "int8"),
        ("alternating", "BF16", 16, 32, "fp8"),
        ("experts", "BF16", 16, 16, "auto"),
        ("sinks", "Q8_0", 64, 48, "q4_0"),
        ("headrace-moe", "Q8_0", 64, 24, "bf16"),
    ],
)
async def test_streams_do_not_disturb_each_other(
    serve: Callable[..., Any],
    tmp_path: Path,
    kind: str,
    codec: str,
    count: int,
    blocks: int,
    kv: str,
) -> None:
    path = model_file(kind, codec, tmp_path)
    server = serve(
        path,
        *("--kv-cache-dtype", kv),
        *("--block-size", "16", "--num-gpu-blocks-override", str(blocks)),
        *("--max-num-batched-tokens", "64", "--max-model-len", "200", "--max-step-ms", "0"),
    )
    cases = _cases(count, server.model, random.Random(f"{codec} {count}"))
    together = await _together(server.url, cases)
    # A server of its own that shares nothing: what the others left in a cache cannot help.
    alone_flags = ("--kv-cache-dtype", kv, "--max-model-len", "200")
    quiet = serve(path, "--no-enable-prefix-caching", *alone_flags)
    checked = cases[:CHECKED]
    alone = await _alone(quiet.url, checked)
    for case, here, there in zip(checked, together, alone, strict=False):
        size = len(here.token_ids)
        assert here.token_ids == there.token_ids[:size]
        assert here.logprobs == there.logprobs[: len(here.logprobs)]
        assert here.top_logprobs == there.top_logprobs[: len(here.top_logprobs)]
        if case.cancel_after is None:
            assert size == len(there.token_ids) == case.body["max_tokens"]
            assert here.finish_reason == there.finish_reason == "length"
    # What came together may have found nothing of a small pool left; what is asked twice does.
    longest = max(range(len(checked)), key=lambda one: len(cases[one].body["prompt"]))
    first, second = await _alone(server.url, [cases[longest]] * 2)
    assert first == second == alone[longest]
    # What a request holds within a window hardly grows: whether one is preempted is up to chance.
    # Elsewhere it is up to when the streams meet, so that they may come again.
    for _ in range(0 if kind.startswith("window") else MORE_ROUNDS):
        if server.metrics()["vllm:num_preemptions_total"] > 0:
            break
        await _together(server.url, cases)
    # The engine's last word on its state is on its way.
    await until(lambda: at_rest(server.metrics()), lambda: f"rest: {server.metrics()}")
    metrics = server.metrics()
    assert kind.startswith("window") or metrics["vllm:num_preemptions_total"] > 0
    assert metrics["vllm:prefix_cache_hits_total"] > 0
    # `metrics` adds up the states of a gauge: free + cached + owned, and the total itself.
    assert metrics["headrace:kv_blocks"] == 2 * blocks
    assert quiet.metrics()["vllm:prefix_cache_hits_total"] == 0
