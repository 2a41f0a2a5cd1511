"""TTFT of many requests that share a prefix, with the prefix cache and without.

    python benchmarks/shared_prefix.py [MODEL.gguf] --requests 32 --prefix 512 --own 32
    python benchmarks/shared_prefix.py MODEL.gguf --tokens 64 --before OTHER/.venv/bin/python
    python benchmarks/shared_prefix.py [MODEL.gguf] --step --prefix 4096

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
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contexts import BLOCK_SIZE, Table, batch_of, pieces, write_random
from benchmarks.streamed import arrivals_s
from headrace.config.settings import EngineConfig
from headrace.embedded import embedded_model
from headrace.engine.memory.kv_memory import kinds_of, spec_of
from headrace.models import Model, load_model
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays
from headrace.weights.open import open_checkpoint

LIMIT_S = 600.0


class Burst(NamedTuple):
    """Requests that were sent at once."""

    ttft_s: list[float]
    """To the first token of each."""
    wall_s: float
    computed_tokens: int


class Server(NamedTuple):
    """A server, and what it said when it was ready."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]


class Contexts(NamedTuple):
    """A KV cache that holds a prefix and what each request has behind it."""

    kv: KVCacheArrays
    tables: dict[str, tuple[Table, ...]]
    """Where the prefix is "shared", or each request's own ("apart"): of each group of layers."""


async def _first_token_s(
    client: httpx.AsyncClient, model: str, prompt: list[int], tokens: int
) -> float:
    start_s = time.perf_counter()
    return (await arrivals_s(client, model, prompt, tokens))[0] - start_s


def _computed(metrics: str) -> int:
    for line in metrics.splitlines():
        if line.startswith("headrace:computed_tokens_total"):
            return int(float(line.rpartition(" ")[2]))
    raise RuntimeError("the server does not count computed tokens")


async def burst_of(url: str, model: str, prompts: Sequence[list[int]], tokens: int) -> Burst:
    """All prompts at once."""
    limits = httpx.Limits(max_connections=len(prompts))
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S, limits=limits) as client:
        before = _computed((await client.get("/metrics")).text)
        start_s = time.perf_counter()
        ttft_s = await asyncio.gather(
            *(_first_token_s(client, model, prompt, tokens) for prompt in prompts)
        )
        wall_s = time.perf_counter() - start_s
        await asyncio.sleep(0.2)
        after = _computed((await client.get("/metrics")).text)
    return Burst(list(ttft_s), wall_s, after - before)


def _started(python: str, model: str | None, flag: str) -> Server:
    command = [python, "-m", "headrace.cli.main", "serve", *([model] if model else [])]
    command += ["--port", "0", "--json", "--log-level", "warning", flag]
    command += ["--speculative-config", "none"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return Server(process, json.loads(process.stdout.readline()))


def bursts(options: argparse.Namespace) -> dict[str, list[Burst]]:
    """One of each server in every round."""
    python, cached = sys.executable, "--enable-prefix-caching"
    versions = {"unshared": (python, "--no-enable-prefix-caching"), "shared": (python, cached)}
    if options.before:
        versions = {"before": (options.before, cached), "shared": (python, cached)}
    servers: dict[str, Server] = {}
    found: dict[str, list[Burst]] = {name: [] for name in versions}
    try:
        for name, (interpreter, flag) in versions.items():
            servers[name] = _started(interpreter, options.model, flag)
        for seed in range(options.rounds):
            prompts = _prompts(options, random.Random(seed))
            for name, server in servers.items():
                url, model = server.ready["url"], server.ready["model"]
                found[name].append(asyncio.run(burst_of(url, model, prompts, options.tokens)))
    finally:
        for server in servers.values():
            server.process.terminate()
            server.process.wait(timeout=30)
    return found


def _prompts(options: argparse.Namespace, rng: random.Random) -> list[list[int]]:
    prefix = [rng.randrange(256) for _ in range(options.prefix)]
    return [
        prefix + [rng.randrange(256) for _ in range(options.own)] for _ in range(options.requests)
    ]


def tables_of(
    requests: int, entries: int, common: int, *, apart: bool
) -> tuple[dict[str, Table], int]:
    """Block tables, in no order, of requests with the same first `common` blocks, with `apart` also
    of such as have none in common, and how many blocks there are."""
    prefixes = requests if apart else 1
    own = requests * (entries - common)
    blocks = own + prefixes * common
    order = np.random.default_rng(0).permutation(blocks).astype(np.int32)
    firsts, lasts = order[own:].reshape(prefixes, common), order[:own].reshape(requests, -1)
    tables = {"shared": np.hstack([np.repeat(firsts[:1], requests, axis=0), lasts])}
    if apart:
        tables["apart"] = np.hstack([firsts, lasts])
    return tables, blocks


def filled(model: Model, ops: Ops, options: argparse.Namespace) -> Contexts:
    """What the options ask for, and room for a token more of each request."""
    kinds = kinds_of(EngineConfig(kv_cache_dtype=options.kv_cache_dtype), model.weight_codec)
    layout = model.cache_layout.stored_as(kinds)
    depth, common = options.prefix + options.own, options.prefix // BLOCK_SIZE
    of_blocks, blocks = tables_of(
        options.requests, depth // BLOCK_SIZE + 1, common, apart=options.apart
    )
    kv = ops.kv_cache(spec_of(layout, kinds, BLOCK_SIZE, layout.num_tables * blocks))
    tables = {name: layout.tables(entries) for name, entries in of_blocks.items()}
    rng = np.random.default_rng(1)
    written = tables["apart" if options.apart else "shared"]
    for request in range(options.requests):
        for start, end in pieces(common * BLOCK_SIZE, depth):
            if options.apart or request == 0 or end > common * BLOCK_SIZE:
                own = [table[request : request + 1] for table in written]
                write_random(model, ops, kv, layout, batch_of(start, end - start, own), rng)
    return Contexts(kv, tables)


def steps(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of steps with the prefix shared, and apart."""
    ops = make_ops("cpu", threads=options.threads)
    depth = options.prefix + options.own
    checkpoint = open_checkpoint(options.model or embedded_model())
    model = load_model(checkpoint, ops, max_positions=depth + 1)
    contexts = filled(model, ops, options)
    taken: dict[str, list[float]] = {name: [] for name in contexts.tables}
    for turn in range(options.rounds + 1):
        for name, tables in contexts.tables.items():
            batch = batch_of(depth, 1, tables)
            begin = time.perf_counter()
            model.forward(batch, contexts.kv)
            if turn:  # the first passes touch what the others evicted
                taken[name].append(time.perf_counter() - begin)
    return taken


def report(found: Mapping[str, Sequence[Burst]]) -> str:
    """Medians over the bursts of each server."""
    lines = [
        f"{'':10} {'TTFT p50 s':>12} {'TTFT max s':>12} {'wall s':>10} {'computed tokens':>16}"
    ]
    for name, of_server in found.items():
        p50 = median(median(burst.ttft_s) for burst in of_server)
        worst = median(max(burst.ttft_s) for burst in of_server)
        wall = median(burst.wall_s for burst in of_server)
        computed = sorted({burst.computed_tokens for burst in of_server})
        lines.append(f"{name:10} {p50:12.3f} {worst:12.3f} {wall:10.3f} {computed!s:>16}")
    return "\n".join(lines)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for; words: those of the command by default."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", help="default: the embedded model")
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
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = arguments(words)
    if options.step:
        for name, seconds in steps(options).items():
            print(
                f"{name:10} {median(seconds) * 1e3:8.1f} ms a step "
                f"[{min(seconds) * 1e3:.1f}..{max(seconds) * 1e3:.1f}]"
            )
        return
    found = bursts(options)
    if options.json:
        listed = {name: [burst._asdict() for burst in some] for name, some in found.items()}
        print(json.dumps(listed))
    else:
        print(report(found))


if __name__ == "__main__":
    main()
