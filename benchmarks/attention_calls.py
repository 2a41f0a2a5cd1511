"""Attention of one layer over a context, of which levels, kinds of K and V, and threads take turns.

    python benchmarks/attention_calls.py [--levels avx512,avx512_bf16] [--kinds bf16,fp8]
                                         [--threads 1,2] [--heads 16x8x128] [--depths 4096,16384]
                                         [--tokens 1] [--requests 1] [--prefix 0] [--json]

bf16 is multiplied by pairs (VDPBF16PS) at `avx512_bf16` and `amx`, and by chains at `avx512`, so
that these two levels compare both. Contexts are cut into parts of 1,024 positions at any level;
--threads 1,2 tells what sharing them out gives. With --prefix N and several requests the first N
positions lie in blocks of each one's own ("apart"), and in blocks that all of them have ("shared").

A line for each combination and depth: the median and the least of a call in ms, the median of
quotients of neighbours, which tells how many times as fast as the first combination it is, GB/s of
K and V as stored (what is shared once) and, of more than one token, GOPS of positions that tokens
see and their share of the level's probe of bf16, or of f32 where K and V are not multiplied as
bf16. Probes and the read bandwidth of all threads are taken before and after each depth.

Layers take turns, as many as it takes to read --megabytes before the first comes again, so that K
and V come from memory. They are random, which changes no time. One thread is timed by its own CPU
time; where one of the combinations has more, all are timed by the clock.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, product
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.contexts import BLOCK_SIZE, batch_of, pieces
from benchmarks.listed import Names, Numbers, Sizes, levels
from benchmarks.turns import Limits, clock_of, in_turns, measured_limits
from headrace.ops.cpu import CpuOps
from headrace.ops.kv import (
    KV_CODECS,
    AttentionShape,
    KVCacheArrays,
    KVCacheSpec,
    KVCodec,
    RaggedBatch,
)


class Variant(NamedTuple):
    """What takes turns. blocks: "apart" or "shared", of a prefix."""

    level: str
    kind: KVCodec
    threads: int
    blocks: str


class Work(NamedTuple):
    """What is attended to: `tokens` new ones of each request behind `depth` positions."""

    shape: AttentionShape
    depth: int
    tokens: int
    requests: int
    prefix: int
    """Positions that begin every request, a multiple of BLOCK_SIZE."""

    @property
    def operations(self) -> float:
        """Of positions that tokens see, in Q K and in P V."""
        seen = self.tokens * self.depth + self.tokens * (self.tokens + 1) // 2
        widths = self.shape.head_dim + self.shape.value_width
        return 2.0 * self.requests * seen * self.shape.num_heads * widths

    def positions(self, blocks: str) -> int:
        """Positions that a call reads, of all requests; what they share once."""
        own = self.depth + self.tokens - self.prefix
        return self.requests * own + self.prefix * (1 if blocks == "shared" else self.requests)


@dataclass(frozen=True)
class Line:
    """A variant over some work. Seconds of a call; limits of the same minute, of all its threads.

    times_as_fast: as the first variant, the median of quotients of neighbours.
    """

    variant: Variant
    work: Work
    median_s: float
    least_s: float
    times_as_fast: float
    read_bytes: int
    limits: Limits

    @property
    def read_gb(self) -> float:
        """GB/s of K and V."""
        return self.read_bytes / self.median_s / 1e9

    @property
    def gops(self) -> float:
        """10^9 operations per second, a multiply and an add being two."""
        return self.work.operations / self.median_s / 1e9

    @property
    def share(self) -> float:
        """Of what the level's own multiply gives."""
        limits = self.limits
        return self.gops * 1e9 / (limits.f32 if self.variant.kind == "f32" else limits.attention)


def tables_of(work: Work) -> tuple[dict[str, npt.NDArray[np.int32]], int]:
    """Block tables, in no order, of a prefix apart and shared, and how many blocks there are."""
    entries = -(-(work.depth + work.tokens) // BLOCK_SIZE)
    common = work.prefix // BLOCK_SIZE
    blocks = work.requests * entries
    order = np.random.default_rng(0).permutation(blocks).astype(np.int32)
    apart = order.reshape(work.requests, entries)
    if not common:
        return {"apart": apart}, blocks
    shared = apart.copy()
    shared[:, :common] = apart[0, :common]
    return {"apart": apart, "shared": shared}, blocks


def token_bytes(spec: KVCacheSpec) -> int:
    """Bytes of K and V of a position in a layer."""
    return spec.token_bytes(spec.place(0))


def filled(ops: CpuOps, kind: KVCodec, work: Work, megabytes: float) -> KVCacheArrays:
    """A cache of so many layers that calls read so much before they come to the first again.

    Every request has the same prefix, so that sharing its blocks changes no result.
    """
    tables, blocks = tables_of(work)
    shape = work.shape
    kv_of = (shape.num_kv_heads, shape.head_dim, BLOCK_SIZE, blocks, kind, kind)
    read = work.positions("shared") * token_bytes(KVCacheSpec.uniform(1, *kv_of))
    layers = max(1, -int(-megabytes * 1e6 // read))
    kv = ops.kv_cache(KVCacheSpec.uniform(layers, *kv_of))
    for request in range(work.requests):
        for start, end in pieces(work.prefix, work.depth + work.tokens):
            seed = (start, 0 if end <= work.prefix else request)
            rows = np.random.default_rng(seed).standard_normal(
                (end - start, shape.row_width), np.float32
            )
            batch = batch_of(start, end - start, [tables["apart"][request : request + 1]])
            for layer in range(layers):
                ops.kv_write(rows, shape, kv, layer, batch)
    return kv


def calls_of(
    ops: CpuOps, kv: KVCacheArrays, batch: RaggedBatch, work: Work, turn: Iterator[int]
) -> Callable[[], npt.NDArray[np.float32]]:
    """Attention of the layer whose turn it is; all layers have the same K and V."""
    shape = (batch.num_tokens, work.shape.row_width)
    qkv = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    bound, layers = ops.bind(batch, kv), len(kv.spec.places)
    return lambda: ops.paged_attention(qkv, work.shape, kv, next(turn) % layers, bound)


def lines(
    names: Sequence[str],
    kinds: Sequence[KVCodec],
    threads: Sequence[int],
    work: Work,
    *,
    megabytes: float = 256.0,
    seconds: float = 1.0,
) -> list[Line]:
    """A line for each combination, which take turns for about `seconds` each.

    RuntimeError: sharing the blocks of a prefix, or another number of threads, changed a result.
    """
    backends = [CpuOps(threads=n, level=name) for name in names for n in threads]
    tables, _ = tables_of(work)
    caches = {kind: filled(backends[0], kind, work, megabytes) for kind in kinds}
    # Variants of a kind go on through its layers together: what one has read lies in a cache.
    turns = {kind: count() for kind in kinds}
    calls = {
        Variant(ops.level, kind, ops.num_threads, blocks): calls_of(
            ops, caches[kind], batch_of(work.depth, work.tokens, [of]), work, turns[kind]
        )
        for (ops, kind, (blocks, of)) in product(backends, kinds, tables.items())
    }
    results: dict[tuple[str, str], npt.NDArray[np.float32]] = {}
    for variant, call in calls.items():
        result = call()
        first = results.setdefault((variant.level, variant.kind), result)
        if not np.array_equal(first, result):
            raise RuntimeError(f"{variant}: other results than the first of its level and kind")
    before = [measured_limits(ops, 2) for ops in backends]
    taken = in_turns(calls, clock_of(max(threads)), seconds)
    limits = {
        (ops.level, ops.num_threads): measured_limits(ops, 2).best(earlier)
        for ops, earlier in zip(backends, before, strict=True)
    }
    base = next(iter(taken.values()))
    made = []
    for variant, times in taken.items():
        quotients = [b / t for b, t in zip(base, times, strict=True)]
        read = work.positions(variant.blocks) * token_bytes(caches[variant.kind].spec)
        of_all = limits[variant.level, variant.threads]
        made.append(
            Line(
                variant, work, statistics.median(times), min(times), statistics.median(quotients),
                read, of_all,
            )
        )  # fmt: skip
    return made


def told(line: Line) -> str:
    """A line of the table."""
    of, work = line.variant, line.work
    by_rate = ""
    if work.tokens > 1:
        by_rate = f"  {line.gops:.0f} GOPS, {line.share:.0%} of the probe"
    return (
        f"{work.depth:7} {of.level:13} {of.kind:5} {of.threads:3} {of.blocks:7} "
        f"{line.median_s * 1e3:9.3f} {line.least_s * 1e3:9.3f} {line.times_as_fast:6.2f} "
        f"{line.read_gb:7.1f} {line.limits.read / 1e9:6.1f}{by_rate}"
    )


def document(line: Line) -> dict[str, object]:
    """A line for JSON, with what follows from what was measured."""
    derived = {name: getattr(line, name) for name in ("read_gb", "gops", "share")}
    return asdict(line) | {
        "variant": line.variant._asdict(),
        "work": line.work._asdict() | {"shape": asdict(line.work.shape)},
        **derived,
    }


@click.command(help=(__doc__ or "").replace("    python", "\b\n    python", 1))
@click.option("--levels", "names", default="auto", type=levels(), help="Of dispatch, by commas.")
@click.option("--kinds", default="bf16", type=Names(tuple(KV_CODECS)), help="Of K and V.")
@click.option("--threads", default="1", type=Numbers(), help="By commas.")
@click.option(
    "--heads", default="16x8x128", type=Sizes("q heads", "kv heads", "width"), show_default=True,
    help="q heads x kv heads x width of a head.",
)  # fmt: skip
@click.option(
    "--depths", default="1024,4096,16384", type=Numbers(0), show_default=True,
    help="Positions before the new tokens.",
)  # fmt: skip
@click.option("--tokens", default=1, type=click.IntRange(1), help="New ones of each request.")
@click.option("--requests", default=1, type=click.IntRange(1), help="In a call.")
@click.option("--prefix", default=0, type=click.IntRange(0), help="Positions that requests share.")
@click.option("--megabytes", default=256.0, help="Of K and V, read in turns.", show_default=True)
@click.option("--seconds", default=1.0, help="For each line.", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def main(
    names: Sequence[str], kinds: Sequence[KVCodec], threads: Sequence[int],
    heads: tuple[int, int, int], depths: Sequence[int], tokens: int, requests: int, prefix: int,
    megabytes: float, seconds: float, as_json: bool,
) -> None:  # fmt: skip
    q_heads, kv_heads, width = heads
    if q_heads % kv_heads:
        raise click.BadParameter(f"{q_heads} q heads are no multiple of {kv_heads} kv heads")
    if prefix % BLOCK_SIZE or prefix > min(depths):
        raise click.BadParameter(
            f"--prefix {prefix} is no multiple of {BLOCK_SIZE}, or longer than the least of "
            f"--depths, {min(depths)}"
        )
    shape = AttentionShape(q_heads, kv_heads, width, width**-0.5)
    if not as_json:
        print(
            f"{'depth':>7} {'level':13} {'kind':5} {'thr':>3} {'blocks':7} {'median ms':>9} "
            f"{'least':>9} {'times':>6} {'GB/s':>7} {'read':>6}"
        )
    made: list[Line] = []
    for depth in depths:
        work = Work(shape, depth, tokens, requests, prefix)
        found = lines(names, kinds, threads, work, megabytes=megabytes, seconds=seconds)
        made += found
        if not as_json:
            print("\n".join(map(told, found)), flush=True)
    if as_json:
        json.dump({"lines": [*map(document, made)]}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
