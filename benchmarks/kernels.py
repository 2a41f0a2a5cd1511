"""How far the CPU kernels are from the limits of this machine.

First the limits, measured with the backend's own threads: bytes read per second and multiplies
per second. Then every shape of work as a share of the limit that binds it: products of few rows
and decode attention by the bytes they have to read, products of many rows and prefill attention
by the multiplies they have to do (quantised kinds against the int8 limit, bf16 weights and caches
against that of bf16, the others against the f32 one). Shapes are Qwen3-0.6B's. Weights and caches
are far larger than the CPU's caches, or cold.

    python benchmarks/kernels.py [--threads 2] [--level auto] [--seconds 0.5] [--only TEXT]
                                 [--codec Q4_K ...] [--json]

Other work on the machine shows in the figures: the minimum says what the kernel can do, the
median what it did.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.random_rows import random_float8, random_rows
from benchmarks.turns import Limits, measured_limits
from headrace.ops.cpu import CpuOps
from headrace.ops.kv import AttentionShape, KVCacheSpec, KVCodec, RaggedBatch
from headrace.ops.operands import LinearWeight, Norm
from headrace.ops.sampling_rows import Chain, LogitsEdit, Penalties, SamplingRows
from headrace.weights.codecs import CODECS, F8_E4M3, get_codec
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor

HIDDEN, FFN, VOCABULARY = 1024, 3072, 151936
SHAPE = AttentionShape(num_heads=16, num_kv_heads=8, head_dim=128, scale=128**-0.5)
# Outputs of a matrix that no cache holds, of floats and of a quantised kind.
STREAMED = (65536, 262144)
MAX_TIMES = 2000


@dataclass(frozen=True)
class Line:
    """One measurement. share: of the limit named, by the median; unit says what `rate` counts."""

    name: str
    runs: int
    median_us: float
    min_us: float
    max_us: float
    rate: float | None = None
    best_rate: float | None = None
    unit: str = ""
    share: float | None = None
    limit: str = ""


@dataclass(frozen=True)
class Bench:
    ops: CpuOps
    limits: Limits
    seconds: float
    codecs: tuple[str, ...]

    def line(
        self, name: str, call: Callable[[], object], amount: float = 0, limit: str = ""
    ) -> Line:
        """Time `call`; amount: bytes or operations of one call, held against `limit`."""
        call()
        times: list[float] = []
        end = time.perf_counter() + self.seconds
        while len(times) < 3 or (time.perf_counter() < end and len(times) < MAX_TIMES):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        median = statistics.median(times)
        figures = (len(times), median * 1e6, min(times) * 1e6, max(times) * 1e6)
        if not amount:
            return Line(name, *figures)
        unit = "GB/s" if limit == "read" else "GOPS"
        rate, best = amount / median / 1e9, amount / min(times) / 1e9
        share = amount / median / getattr(self.limits, limit)
        return Line(name, *figures, rate, best, unit, share, limit)


def random_matrix(out: int, width: int, codec: str) -> Tensor:
    """Of a kind of CODECS, or of F8_E4M3 with a scale for each 128 x 128."""
    if codec == F8_E4M3.name:
        return _random_float8(out, width)
    kind = get_codec(codec)
    slab = random_rows(kind, np.random.default_rng(0), 256, width, width**-0.5)
    data = np.resize(slab, (out, kind.row_bytes(width)))
    return Tensor("random", (out, width), kind, data)


def _random_float8(out: int, width: int) -> ScaledTensor:
    rng = np.random.default_rng(0)
    data = np.resize(random_float8(rng, 256, width), (out, width))
    scales = rng.uniform(0.5, 1.5, (-(-out // 128), -(-width // 128))).astype(np.float32)
    return ScaledTensor(
        "random", (out, width), F8_E4M3, data, scales=scales, block=(128, 128),
        scale_bytes=scales.nbytes,
    )  # fmt: skip


def activations(rows: int, width: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((rows, width)).astype(np.float32)


def products(bench: Bench) -> Iterator[Line]:
    ops, norm = bench.ops, Norm(np.ones(HIDDEN, np.float32), 1e-6)
    for codec in bench.codecs:
        out = STREAMED[get_codec(codec).block_elements > 1]
        weight = ops.linear_weight([random_matrix(out, HIDDEN, codec)])
        for rows in (1, 4, 8):
            x = activations(rows, HIDDEN)
            yield bench.line(
                f"linear {codec} {rows} x {HIDDEN} x {out}",
                partial(ops.linear, x, weight, norm=norm),
                weight.nbytes,
                "read",
            )
    for codec in bench.codecs:
        limit = "int8" if get_codec(codec).block_elements > 1 else "f32"
        limit = "bf16" if codec == "BF16" else limit
        for out, width in ((2 * FFN, HIDDEN), (HIDDEN, FFN)):
            weight = ops.linear_weight([random_matrix(out, width, codec)])
            for rows in (32, 512):
                x = activations(rows, width)
                yield bench.line(
                    f"linear {codec} {rows} x {width} x {out}",
                    partial(ops.linear, x, weight),
                    2.0 * rows * out * width,
                    limit,
                )


def attention(bench: Bench) -> Iterator[Line]:
    cases: tuple[tuple[str, list[tuple[int, int]], int], ...] = (
        ("decode 1 x 4096", [(4095, 1)], 8),
        ("decode 1 x 16384", [(16383, 1)], 4),
        ("decode 32 x 512", [(511, 1)] * 32, 4),
        ("prefill 512", [(0, 512)], 2),
        ("prefill 512 after 1536", [(1536, 512)], 2),
        ("prefill 512 after 3584", [(3584, 512)], 2),
        ("prefill 512 after 7680", [(7680, 512)], 2),
    )
    for codec in ("bf16", "f32", "fp8", "int8", "q8_0", "q4_0"):
        for name, requests, layers in cases:
            yield attention_line(bench, f"attention {codec} {name}", requests, layers, codec)


def attention_line(
    bench: Bench, name: str, requests: list[tuple[int, int]], layers: int, codec: KVCodec
) -> Line:
    """requests: (first new position, new tokens) each. Layers take turns: K and V are cold."""
    ops, block = bench.ops, 16
    counts = [-(-(start + new) // block) for start, new in requests]
    spec = KVCacheSpec.uniform(
        layers, SHAPE.num_kv_heads, SHAPE.head_dim, block, sum(counts), codec, codec
    )
    kv = ops.kv_cache(spec)
    ids = np.random.default_rng(2).permutation(sum(counts)).astype(np.int32)
    tables = np.zeros((len(requests), max(counts)), np.int32)
    for row, part in enumerate(np.split(ids, np.cumsum(counts)[:-1])):
        tables[row, : len(part)] = part
    width = (SHAPE.num_heads + 2 * SHAPE.num_kv_heads) * SHAPE.head_dim

    def batch_of(spans: list[tuple[int, int]]) -> RaggedBatch:
        positions = np.concatenate([np.arange(s, s + n, dtype=np.int32) for s, n in spans])
        starts = np.cumsum([0, *(n for _, n in spans)]).astype(np.int32)
        return RaggedBatch(positions * 0, positions, starts, (tables,), starts[1:] - 1)

    whole = batch_of([(0, start + new) for start, new in requests])
    filling = activations(whole.num_tokens, width)
    for layer in range(layers):
        ops.kv_write(filling, SHAPE, kv, layer, whole)
    batch = batch_of(requests)
    qkv = activations(batch.num_tokens, width)
    turn = iter(range(10**9))
    line_args: tuple[float, str]
    if "decode" in name:
        line_args = (kv.arrays.nbytes / layers, "read")
    else:
        seen = float((batch.positions.astype(np.int64) + 1).sum())
        limit = "attention" if codec == "bf16" else "f32"
        line_args = (4.0 * seen * SHAPE.num_heads * SHAPE.head_dim, limit)
    return bench.line(
        name,
        lambda: ops.paged_attention(qkv, SHAPE, kv, next(turn) % layers, batch),
        *line_args,
    )


def batch_lines(bench: Bench) -> Iterator[Line]:
    """A layer of 32 requests far on, of small heads: checks of the batch against the work."""
    ops, blocks = bench.ops, 512
    shape = AttentionShape(num_heads=2, num_kv_heads=1, head_dim=16, scale=0.25)
    kv = ops.kv_cache(KVCacheSpec.uniform(1, 1, 16, 16, 32 * blocks, "bf16", "bf16"))
    batch = RaggedBatch(
        token_ids=np.zeros(32, np.int32),
        positions=np.full(32, 16 * blocks - 1, np.int32),
        query_start=np.arange(33, dtype=np.int32),
        block_tables=(np.arange(32 * blocks, dtype=np.int32).reshape(32, blocks),),
        logit_rows=np.zeros(0, np.int32),
    )
    qkv, bound = activations(32, 64), ops.bind(batch, kv)
    yield bench.line("kv_write 32 x 1, unbound", lambda: ops.kv_write(qkv, shape, kv, 0, batch))
    yield bench.line("kv_write 32 x 1, bound", lambda: ops.kv_write(qkv, shape, kv, 0, bound))
    yield bench.line("bind 32 x 8192", lambda: ops.bind(batch, kv))


def the_rest(bench: Bench) -> Iterator[Line]:
    ops = bench.ops
    tiny = ops.linear_weight([random_matrix(16, 32, "F32")])
    yield bench.line("call overhead: linear 1 x 32 x 16", lambda: ops.linear(single_row, tiny))
    yield from batch_lines(bench)
    gate_up = activations(512, 2 * FFN)
    moved = 512 * 3 * FFN * 4
    yield bench.line(
        "gated_activation 512", lambda: ops.gated_activation(gate_up, "silu"), moved, "read"
    )
    table = ops.rope_table(1e6 ** -(np.arange(0, 128, 2) / 128), 1024)
    norm = Norm(np.ones(128, np.float32), 1e-6)
    width = (SHAPE.num_heads + 2 * SHAPE.num_kv_heads) * SHAPE.head_dim
    qkv, positions = activations(512, width), np.arange(512, dtype=np.int32)
    yield bench.line(
        "rope 512, with norms",
        lambda: ops.rope(qkv, SHAPE, table, positions, q_norm=norm, k_norm=norm),
        512 * (SHAPE.num_heads + SHAPE.num_kv_heads) * 128 * 8,
        "read",
    )
    packed: list[LinearWeight] = []
    for codec in bench.codecs:
        stored = random_matrix(32768, HIDDEN, codec)

        def pack(stored: Tensor = stored) -> None:
            packed[:] = [ops.linear_weight([stored])]

        yield bench.line(
            f"pack {codec} 32768 x 1024 (read and written)", pack, 2 * stored.nbytes, "read"
        )
    logits = activations(1, VOCABULARY) * np.float32(4)
    for name, temperature, top_k, top_p in (
        ("greedy", 0, 0, 1), ("temperature", 1, 0, 1), ("top_p 0.95", 1, 0, 0.95),
        ("top_k 50, top_p 0.95", 1, 50, 0.95),
    ):  # fmt: skip
        rows = SamplingRows(
            np.array([temperature], np.float32),
            np.array([top_k], np.int32),
            np.array([top_p], np.float32),
            np.zeros(1, np.float32),
            np.array([0.5]),
        )
        yield bench.line(
            f"sample {VOCABULARY}, {name}",
            partial(ops.sample, logits, rows, VOCABULARY),
        )
    seen = np.arange(0, VOCABULARY, VOCABULARY // 5000, dtype=np.int32)
    penalties = Penalties(seen, np.ones_like(seen), 1.1, 0.1, 0.1)
    nothing, no_bias = np.zeros(0, np.int32), np.zeros(0, np.float32)
    bent = logits.copy()
    for name, allowed, masked, by in (
        (f"penalties of {len(seen)}", None, nothing, penalties),
        ("an allow-list of 100", seen[:100], nothing, None),
        ("a mask of 1", None, seen[:1], None),
    ):
        change = LogitsEdit(0, nothing, no_bias, allowed, masked, by)
        yield bench.line(f"{name} of {VOCABULARY}", partial(ops.adjust, bent, [change]))
    chain = Chain(("temperature", "penalties", "top_k", "top_p"), penalties)
    chained = replace(rows, chains=(chain,))
    yield bench.line(
        f"sample {VOCABULARY}, {', '.join(chain.stages)}",
        lambda: ops.sample(logits, chained, VOCABULARY),
    )
    yield bench.line(
        f"top_logprobs {VOCABULARY}, 20",
        lambda: ops.top_logprobs(logits, np.zeros(1, np.int32), 20, VOCABULARY),
    )


single_row = np.ones((1, 32), np.float32)


def show(line: Line) -> None:
    times = f"{line.median_us:11.1f} {line.min_us:11.1f} {line.max_us:11.1f}"
    rate = ""
    if line.rate is not None and line.share is not None:
        rate = (
            f"{line.rate:9.1f} {line.best_rate:9.1f} {line.unit} {line.share:6.0%} of {line.limit}"
        )
    print(f"{line.name:44s} {times} {rate}", flush=True)


@click.command()
@click.option("--threads", type=int, default=None, help="Compute threads; default: all CPUs.")
@click.option("--level", default="auto", help="Dispatch level.")
@click.option("--seconds", type=float, default=0.5, help="Time spent on each line.")
@click.option("--only", default="", help="Only groups whose name contains this.")
@click.option("--codec", "codecs", multiple=True, help="Only this kind; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def main(
    threads: int | None,
    level: str,
    seconds: float,
    only: str,
    codecs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure the CPU kernels against the limits of this machine."""
    groups = [group for group in (products, attention, the_rest) if only in group.__name__]
    if not groups:
        raise click.BadParameter(f"--only {only}: in none of products, attention, the_rest")
    ops = CpuOps(level, threads)
    limits = measured_limits(ops)
    bench = Bench(ops, limits, seconds, codecs or tuple(CODECS))
    if not as_json:
        print(
            f"level {ops.level}, {ops.num_threads} threads: read {limits.read / 1e9:.1f} GB/s, "
            f"f32 {limits.f32 / 1e9:.0f} GOPS, bf16 {limits.bf16 / 1e9:.0f} GOPS, "
            f"int8 {limits.int8 / 1e9:.0f} GOPS, attention {limits.attention / 1e9:.0f} GOPS"
        )
        columns = [*("median us", "min us", "max us"), *("median", "best")]
        print(" " * 44, *(f"{name:>11s}" for name in columns[:3]), end=" ")
        print(*(f"{name:>9s}" for name in columns[3:]))
    lines: list[Line] = []
    for group in groups:
        for line in group(bench):
            lines.append(line)
            if not as_json:
                show(line)
    if as_json:
        document = {
            "level": ops.level,
            "threads": ops.num_threads,
            "limits": asdict(limits),
            "lines": [asdict(line) for line in lines],
        }
        json.dump(document, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
