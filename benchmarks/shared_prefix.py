"""TTFT of many requests that share a prefix, with the prefix cache and without.

    python benchmarks/shared_prefix.py [MODEL.gguf] --requests 32 --prefix 512 --own 32

Servers with and without `--enable-prefix-caching` take turns (A B A B); every round uses a new
random prefix, so nothing is warm. Tokens computed are read from the server's own counters.
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

LIMIT_S = 600.0


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


def _start(model: str | None, flag: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    command = [sys.executable, "-m", "headrace.cli.main", "serve", *([model] if model else [])]
    command += ["--port", "0", "--json", "--log-level", "warning", flag]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prefix", type=int, default=512, help="shared tokens")
    parser.add_argument("--own", type=int, default=32, help="tokens of each request's own")
    parser.add_argument("--tokens", type=int, default=1, help="tokens generated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    flags = {"shared": "--enable-prefix-caching", "unshared": "--no-enable-prefix-caching"}
    servers = {name: _start(options.model, flag) for name, flag in flags.items()}
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
