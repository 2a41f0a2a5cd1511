"""TTFT of many requests that share a prefix, with the prefix cache and without.

    python benchmarks/shared_prefix.py [MODEL.gguf] --requests 32 --prefix 512 --own 32
    python benchmarks/shared_prefix.py MODEL.gguf --tokens 64 --before OTHER/.venv/bin/python
    python benchmarks/shared_prefix.py MODEL.gguf --step --prefix 4096

Servers with and without `--enable-prefix-caching` take turns (A B A B), or, with `--before`, that
of another version, installed for that Python, and this one's; every round uses a new random prefix,
so nothing is warm. Guesses are off. Tokens computed are read from the server's own counters.

With `--step` no server is started: it is the forward pass of a token of each request that is timed,
with the prefix in blocks that all of them have and, with `--apart`, in blocks of each one's own, in
turns. K and V are random, which changes no time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

import httpx
import numpy as np

from headrace.config.settings import EngineConfig
from headrace.engine.memory.kv_memory import kinds_of, spec_of
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.ops.kv import RaggedBatch
from headrace.weights.open import open_checkpoint

LIMIT_S = 600.0
BLOCK_SIZE, WRITTEN_TOKENS = 32, 512


class Round(NamedTuple):
    """One burst: seconds to first token of each request, of the whole, and tokens computed."""

    ttft_s: list[float]
    wall_s: float
    computed_tokens: int


async def _one(client: httpx.AsyncClient, model: str, prompt: list[int], tokens: int) -> float:
    body = {
        "model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0,
        "ignore_eos": True, "stream": True,
    }  # fmt: skip
    start = time.perf_counter()
    first = 0.0
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if line.startswith("data: {") and not first:
                first = time.perf_counter() - start
    return first


def _computed(metrics: str) -> int:
    for line in metrics.splitlines():
        if line.startswith("headrace:computed_tokens_total"):
            return int(float(line.rpartition(" ")[2]))
    raise RuntimeError("the server does not count computed tokens")


async def burst(url: str, model: str, prompts: list[list[int]], tokens: int) -> Round:
    """All prompts at once."""
    limits = httpx.Limits(max_connections=len(prompts))
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S, limits=limits) as client:
        before = _computed((await client.get("/metrics")).text)
        start = time.perf_counter()
        ttft = await asyncio.gather(*(_one(client, model, prompt, tokens) for prompt in prompts))
        wall = time.perf_counter() - start
        await asyncio.sleep(0.2)
        after = _computed((await client.get("/metrics")).text)
    return Round(list(ttft), wall, after - before)


def _start(
    python: str, model: str | None, flag: str
) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    command = [python, "-m", "headrace.cli.main", "serve", *([model] if model else [])]
    command += ["--port", "0", "--json", "--log-level", "warning", flag]
    command += ["--speculative-config", "none"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def _batch(counts: list[int], start: int, tables: list[np.ndarray]) -> RaggedBatch:
    """So many tokens of each request, from a position on; the logits of the last."""
    ends = np.cumsum([0, *counts]).astype(np.int32)
    positions = [np.arange(start, start + count, dtype=np.int32) for count in counts]
    return RaggedBatch(
        token_ids=np.full(ends[-1], 7, np.int32),
        positions=np.concatenate(positions),
        query_start=ends,
        block_tables=tuple(tables),
        logit_rows=ends[1:] - 1,
    )


def steps(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of a step with the prefix shared, and apart."""
    ops = make_ops("cpu", threads=options.threads)
    depth, requests = options.prefix + options.own, options.requests
    model = load_model(open_checkpoint(options.model), ops, max_positions=depth + 1)
    kinds = kinds_of(EngineConfig(kv_cache_dtype=options.kv_cache_dtype), model.weight_codec)
    layout = model.cache_layout.stored_as(kinds)
    entries, common = depth // BLOCK_SIZE + 1, options.prefix // BLOCK_SIZE
    own = requests * (entries - common)
    count = own + common * (requests if options.apart else 1)
    order = np.random.default_rng(0).permutation(count).astype(np.int32)
    first, last = order[own:].reshape(-1, common), order[:own].reshape(requests, -1)
    together = np.hstack([np.repeat(first[:1], requests, axis=0), last])
    layouts = {"shared": together}
    if options.apart:
        layouts["apart"] = np.hstack([first, last])
    num_tables = sum(group.num_tables for group in layout.groups)
    kv = ops.kv_cache(spec_of(layout, kinds, BLOCK_SIZE, num_tables * count))
    tables = {
        name: [table + np.int32(number * count) for number in range(num_tables)]
        for name, table in layouts.items()
    }
    rng = np.random.default_rng(1)
    for start in range(0, depth, WRITTEN_TOKENS):
        tokens = min(WRITTEN_TOKENS, depth - start)
        for request in range(requests):
            if request and start < options.prefix and not options.apart:
                continue
            of_all = tables["apart" if options.apart else "shared"]
            rows_of = [table[request : request + 1] for table in of_all]
            batch = _batch([tokens], start, rows_of)
            for layer, place in enumerate(layout.places):
                if place is not None:
                    shape = model.config.attention_of(layer)
                    rows = rng.standard_normal((tokens, shape.row_width), np.float32)
                    ops.kv_write(rows, shape, kv, layer, batch)
    taken: dict[str, list[float]] = {name: [] for name in tables}
    for turn in range(options.rounds + 1):
        for name, of in tables.items():
            batch = _batch([1] * requests, depth, of)
            begin = time.perf_counter()
            model.forward(batch, kv)
            if turn:  # the first passes touch what the others evicted
                taken[name].append(time.perf_counter() - begin)
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prefix", type=int, default=512, help="shared tokens")
    parser.add_argument("--own", type=int, default=32, help="tokens of each request's own")
    parser.add_argument("--tokens", type=int, default=1, help="tokens generated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", help="Python of another version, in place of no prefix cache")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--step", action="store_true", help="time steps, without a server")
    parser.add_argument("--apart", action="store_true", help="with --step: each its own prefix too")
    parser.add_argument("--threads", type=int, default=2, help="of --step")
    parser.add_argument("--kv-cache-dtype", default="auto", help="of --step")
    options = parser.parse_args()
    if options.step:
        if options.model is None:
            parser.error("--step takes the path of a model")
        for name, seconds in steps(options).items():
            print(
                f"{name:10} {statistics.median(seconds) * 1e3:8.1f} ms a step "
                f"[{min(seconds) * 1e3:.1f}..{max(seconds) * 1e3:.1f}]"
            )
        return
    python, cached = sys.executable, "--enable-prefix-caching"
    others = {"unshared": (python, "--no-enable-prefix-caching")}
    if options.before:
        others = {"before": (options.before, cached)}
    versions = {**others, "shared": (python, cached)}
    servers = {name: _start(of, options.model, flag) for name, (of, flag) in versions.items()}
    rounds: dict[str, list[Round]] = {name: [] for name in servers}
    try:
        for seed in range(options.rounds):
            rng = random.Random(seed)
            prefix = [rng.randrange(256) for _ in range(options.prefix)]
            prompts = [
                prefix + [rng.randrange(256) for _ in range(options.own)]
                for _ in range(options.requests)
            ]
            for name, (_, ready) in servers.items():
                work = burst(ready["url"], ready["model"], prompts, options.tokens)
                rounds[name].append(asyncio.run(work))
    finally:
        for process, _ in servers.values():
            process.terminate()
            process.wait(timeout=30)
    if options.json:
        print(json.dumps({name: [r._asdict() for r in them] for name, them in rounds.items()}))
        return
    print(f"{'':10} {'TTFT p50 s':>12} {'TTFT max s':>12} {'wall s':>10} {'computed tokens':>16}")
    for name, them in rounds.items():
        p50 = statistics.median(statistics.median(r.ttft_s) for r in them)
        worst = statistics.median(max(r.ttft_s) for r in them)
        wall = statistics.median(r.wall_s for r in them)
        computed = sorted({r.computed_tokens for r in them})
        print(f"{name:10} {p50:12.3f} {worst:12.3f} {wall:10.3f} {computed!s:>16}")


if __name__ == "__main__":
    main()
