"""What single kernels of a device reach, at shapes of real models: `--part kernels` of
`python -m benchmarks.gpu`.

Weights are drawn on the device. Beside each time stand the bytes that had to be read, as a rate,
whether the first row had the bits it has alone, and how far results are from exact ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.gpu_pieces import Figures
from benchmarks.random_weights import RandomOps, stand_in
from headrace.ops.device import SLICE_VALUES
from headrace.ops.experts import ExpertMLP, ExpertWeight, Routes
from headrace.ops.kv import (
    KV_CODECS,
    AttentionShape,
    KVCacheArrays,
    KVCacheSpec,
    KVCodec,
    RaggedBatch,
)
from headrace.ops.torch import mixtures
from headrace.ops.torch.matrices import Matrix
from headrace.ops.torch.rounding import operand
from headrace.ops.torch.weights import Linear, Stack
from headrace.weights.codecs import F8_E4M3, get_codec

Timer = Callable[[Callable[[], object]], float]
"""Seconds of a call."""


class KernelSizes(NamedTuple):
    """Shapes that are timed."""

    outs: int
    width: int
    rows: tuple[int, ...]
    experts: int
    chosen: int
    hidden: int
    expert_width: int
    tokens: tuple[int, ...]
    attention: AttentionShape
    contexts: tuple[int, ...]
    requests: tuple[int, ...]


SIZES = {
    "full": KernelSizes(
        14336, 4096, (1, 8, 16, 17, 32, 128, 512, 2048), 128, 8, 2048, 768, (1, 8, 32, 256, 2048),
        AttentionShape(32, 8, 128, 128**-0.5), (1024, 8192, 32768), (1, 8, 32),
    ),
    "small": KernelSizes(
        96, 256, (1, 17), 4, 2, 256, 256, (1, 5), AttentionShape(4, 2, 16, 0.25), (70,), (1, 2),
    ),
}  # fmt: skip
"""full: the widest product of Llama-3.1-8B, the experts of Qwen3-30B-A3B, the heads of either.
small: what a test runs on a processor, where PyTorch computes all of it."""
KINDS = ("Q8_0", "Q4_0", "Q4_K", "Q6_K", "MXFP4", "F8_E4M3", "BF16")
CACHES: tuple[KVCodec, ...] = ("bf16", "fp8", "int8", "q8_0", "q4_0")


EXACT_ROWS = 32
"""Rows whose products are computed in float64 too: a device does few of these."""


def kernels(device: torch.device, sizes: KernelSizes, timed: Timer, figures: Figures) -> None:
    """Products, experts and attention, a figure for each kind and shape."""
    ops = RandomOps(str(device))
    for kind in KINDS:
        _products(ops, sizes, kind, timed, figures)
    for kind in KINDS:
        _experts(ops, sizes, kind, timed, figures)
    for codec in CACHES:
        for context in sizes.contexts:
            _attention(ops, sizes, codec, context, timed, figures)


def _matrix(ops: RandomOps, kind: str, rows: int, width: int) -> Matrix:
    codec = F8_E4M3 if kind == F8_E4M3.name else get_codec(kind)
    return ops._copied([stand_in(f"{rows} by {width}", (rows, width), codec)])


def _result(seconds: float, read: int, operations: int, **rest: Any) -> dict[str, Any]:
    rates = {"bytes_per_s": read / seconds, "ops_per_s": operations / seconds}
    return {**rest, "seconds": seconds, **rates}


def _same(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Bits, of numbers that are none too."""
    equal: bool = torch.equal(tensor.view(torch.int32), other.view(torch.int32))
    return equal


def _products(
    ops: RandomOps, sizes: KernelSizes, kind: str, timed: Timer, figures: Figures
) -> None:
    @cache
    def made() -> tuple[Matrix, torch.Tensor, torch.Tensor]:
        matrix = _matrix(ops, kind, sizes.outs, sizes.width)
        x = torch.randn((max(sizes.rows), sizes.width), device=ops.device)
        return matrix, x, matrix.times(x[:1])

    def measured(rows: int) -> dict[str, Any]:
        matrix, x, alone = made()
        part = x[:rows]
        found = matrix.times(part)
        seconds = timed(lambda: matrix.times(part))
        return _result(
            seconds, matrix.nbytes, 2 * rows * sizes.outs * sizes.width,
            as_alone=_same(found[:1], alone), error=_error_of_product(matrix, part, found),
        )  # fmt: skip

    for rows in sizes.rows:
        keys = ("kernels", "products", kind, f"{rows} rows")
        figures.measure(keys, partial(measured, rows))


def _error_of_product(matrix: Matrix, x: torch.Tensor, found: torch.Tensor) -> float:
    """The largest error of the first rows, in units of 2^-24 of the sum of magnitudes: at most
    about the length of a sum, for any order of it."""
    x, found = operand(x[:EXACT_ROWS], matrix.codec.name).double(), found[:EXACT_ROWS]
    most, step = 0.0, max(1, SLICE_VALUES // matrix.width)
    for at in range(0, len(matrix.data), step):
        part = matrix.rows(slice(at, at + step)).double().t()
        off = (found[:, at : at + step].double() - x @ part).abs()
        most = max(most, float((off / (x.abs() @ part.abs())).max()))
    return most * 2.0**24


def _stack(ops: RandomOps, kind: str, count: int, outs: int, width: int) -> ExpertWeight:
    whole = _matrix(ops, kind, count * outs, width)
    linears = tuple(Linear(whole.part(at * outs, outs)) for at in range(count))
    return ExpertWeight(count, outs, width, kind, whole.nbytes, Stack(whole, linears, None))


def _experts(ops: RandomOps, sizes: KernelSizes, kind: str, timed: Timer, figures: Figures) -> None:
    count, hidden, width = sizes.experts, sizes.hidden, sizes.expert_width

    @cache
    def made() -> tuple[ExpertMLP, torch.Tensor, torch.Tensor, torch.Tensor]:
        gate_up = _stack(ops, kind, count, 2 * width, hidden)
        mlp = ExpertMLP(gate_up, _stack(ops, kind, count, hidden, width), "silu")
        most = max(sizes.tokens)
        x = torch.randn((most, hidden), device=ops.device)
        chosen = torch.rand((most, count), device=ops.device).topk(sizes.chosen).indices.int()
        return mlp, x, chosen, torch.rand((most, sizes.chosen), device=ops.device)

    def run(tokens: int) -> torch.Tensor:
        mlp, x, chosen, weights = made()
        routes = Routes(chosen[:tokens], weights[:tokens])
        return mixtures.run(x[:tokens], mlp, routes, None, 1.0)

    def measured(tokens: int) -> dict[str, Any]:
        mlp, _, chosen, _ = made()
        used = len(set(chosen[:tokens].flatten().tolist()))
        read = (mlp.gate_up.nbytes + mlp.down.nbytes) * used // count
        as_alone = _same(run(tokens)[:1], run(1))
        return _result(
            timed(partial(run, tokens)), read, 6 * tokens * sizes.chosen * hidden * width,
            experts=used, as_alone=as_alone,
        )  # fmt: skip

    for tokens in sizes.tokens:
        keys = ("kernels", "experts", kind, f"{tokens} tokens")
        figures.measure(keys, partial(measured, tokens))


def _attention(
    ops: RandomOps, sizes: KernelSizes, codec: KVCodec, context: int, timed: Timer, figures: Figures
) -> None:
    shape, block_size = sizes.attention, 64
    blocks, most = -(-context // block_size), max(sizes.requests)

    @cache
    def made() -> tuple[KVCacheArrays, torch.Tensor]:
        spec = KVCacheSpec.uniform(
            1, shape.num_kv_heads, shape.head_dim, block_size, most * blocks, codec, codec
        )
        cache, rows = ops.kv_cache(spec), torch.randn((most, shape.row_width), device=ops.device)
        # Keys and values of every position, so that what is far away counts.
        positions = np.arange(context, dtype=np.int32)
        for at in range(most):
            own = torch.randn((context, shape.row_width), device=ops.device)
            table = np.arange(at * blocks, (at + 1) * blocks, dtype=np.int32)[None]
            ends = np.array([0, context], np.int32)
            batch = RaggedBatch(np.zeros(context, np.int32), positions, ends, (table,), ends[:0])
            ops.kv_write(own, shape, cache, 0, ops.bind(batch, cache))
        return cache, rows

    def run(count: int) -> Callable[[], torch.Tensor]:
        cache, rows = made()
        table = np.arange(count * blocks, dtype=np.int32).reshape(count, blocks)
        ends = np.arange(count + 1, dtype=np.int32)
        last = np.full(count, context - 1, np.int32)
        batch = RaggedBatch(np.zeros(count, np.int32), last, ends, (table,), ends[:-1])
        bound = ops.bind(batch, cache)
        return lambda: ops.paged_attention(rows[:count], shape, cache, 0, bound)

    def measured(count: int) -> dict[str, Any]:
        together = run(count)
        first, alone = together()[:1], run(1)()
        read = count * context * 2 * shape.num_kv_heads
        return _result(
            timed(together), read * KV_CODECS[codec].token_bytes(shape.head_dim),
            4 * count * context * shape.num_heads * shape.head_dim,
            as_alone=_same(first, alone), beside_plain=_beside_plain(ops, run(1), alone),
        )  # fmt: skip

    for count in sizes.requests:
        keys = ("kernels", "attention", codec, f"{count} of {context}")
        figures.measure(keys, partial(measured, count))


def _beside_plain(ops: RandomOps, run: Callable[[], torch.Tensor], alone: torch.Tensor) -> float:
    """How far the kernel is from operations of PyTorch, as a share of the largest value."""
    kernels, ops.kernels = ops.kernels, False
    try:
        plain = run()
    finally:
        ops.kernels = kernels
    return float((alone - plain).abs().max() / plain.abs().max())
