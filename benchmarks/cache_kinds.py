"""Passes by what K and V are stored in: tokens a second at several depths, beside bf16.

python benchmarks/cache_kinds.py q06.gguf --depths 1024,4096,16384 --threads 2 [--tokens 256]

The forward pass of one decoding request, or with --tokens of so many of a prompt, which is what a
step of the engine takes but for some 0.03 ms. With --attention the attention of one layer of it.
The context is made of random K and V, written as a prompt's are, since what is in it changes no
time: so every kind has one in seconds, and their passes are timed in turns. Medians; the rate
beside bf16 is the median of the quotients of neighbours.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contexts import BLOCK_SIZE, Table, batch_of, pieces, write_random
from headrace.config.settings import EngineConfig
from headrace.engine.memory.kv_memory import kinds_of, spec_of
from headrace.models import Model, load_model
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from headrace.ops.kv import NEAR_SPAN, KVCacheArrays
from headrace.weights.open import open_checkpoint

KINDS = ("bf16", "fp8", "int8", "q8_0", "q4_0", "q4_0 none", "q8_0 bf16")
"""A type and, behind it, what is near, where that is not by default."""


class Cache(NamedTuple):
    """A KV cache of one request that is full up to some depth."""

    kv: KVCacheArrays
    tables: tuple[Table, ...]
    bytes_per_token: int


def filled(model: Model, ops: Ops, kind: str, depth: int, tokens: int) -> Cache:
    """The cache of a kind, with random K and V of `depth` tokens and room for `tokens` more."""
    dtype, _, near = kind.partition(" ")
    settings = {"kv_cache_dtype": dtype, "kv_cache_near": near or "auto"}
    kinds = kinds_of(EngineConfig(**settings), model.weight_codec)  # type: ignore[arg-type]
    layout = model.cache_layout.stored_as(kinds)
    entries = -(-(depth + tokens) // BLOCK_SIZE)
    tables: list[Table] = []
    blocks = 0
    for group in layout.groups:
        # Of what is near a request keeps its last span: older ones share its blocks here.
        held = -(-(2 * NEAR_SPAN + tokens) // BLOCK_SIZE) if group.near else entries
        order = np.random.default_rng(0).permutation(held).astype(np.int32)
        for _ in range(group.num_tables):
            tables.append(np.resize(order, entries)[None] + np.int32(blocks))
            blocks += held
    kv = ops.kv_cache(spec_of(layout, kinds, BLOCK_SIZE, blocks))
    rng = np.random.default_rng(1)
    for start, end in pieces(0, depth):
        write_random(model, ops, kv, layout, batch_of(start, end - start, tables), rng)
    stored = [kv.spec.token_bytes(place) for place in layout.places if place is not None]
    return Cache(kv, tuple(tables), sum(stored))


def timed(
    model: Model, ops: Ops, kinds: Sequence[str], depth: int, given: argparse.Namespace
) -> dict[str, list[float]]:
    """Seconds of a pass of each kind, in turns."""
    caches = {kind: filled(model, ops, kind, depth, given.tokens) for kind in kinds}
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    shape = model.config.attention_of(0)
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((given.tokens, shape.row_width), np.float32)
    for turn in range(given.rounds + 2):
        for kind, cache in caches.items():
            batch = batch_of(depth, given.tokens, cache.tables)
            begin = time.perf_counter()
            if given.attention:
                ops.paged_attention(rows, shape, cache.kv, 0, batch)
            else:
                model.forward(batch, cache.kv)
            if turn >= 2:  # the first passes touch what the others evicted
                taken[kind].append(time.perf_counter() - begin)
    for kind, cache in caches.items():
        times, base = taken[kind], taken[kinds[0]]
        beside = median(b / t for b, t in zip(base, times, strict=True))
        print(
            f"| {kind} | {depth:,} | {cache.bytes_per_token:,} | {median(times) * 1e3:.2f} "
            f"[{min(times) * 1e3:.2f}..{max(times) * 1e3:.2f}] | "
            f"{given.tokens / median(times):.1f} | "
            f"{beside:.2f} |",
            flush=True,
        )
    return taken


def main(words: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--depths", default="1024,4096,16384")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--level", default="auto")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=1, help="tokens of a pass")
    parser.add_argument("--attention", action="store_true", help="of one layer, and nothing else")
    given = parser.parse_args(words)
    ops = make_ops("cpu", cpu_level=given.level, threads=given.threads)
    depths = [int(depth) for depth in given.depths.split(",")]
    model = load_model(open_checkpoint(given.model), ops, max_positions=max(depths) + given.tokens)
    print(f"level {ops.level}, {given.threads} threads")
    print("| kind | depth | bytes a token | ms a pass | tokens/s | beside bf16 |")
    print("|---|---|---|---|---|---|")
    for depth in depths:
        timed(model, ops, given.kinds.split(","), depth, given)


if __name__ == "__main__":
    main()
