"""What single kernels of a device reach, at shapes of real models: `--part kernels` of
`python -m benchmarks.gpu`.

Weights are random bytes that are made on the device, which no time depends on. Beside each time
stand the bytes that had to be read, as a rate, and whether the first row had the bits it has alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from headrace.ops.experts import ExpertMLP, ExpertWeight, Routes
from headrace.ops.kv import KV_CODECS, AttentionShape, KVCacheSpec, KVCodec, RaggedBatch
from headrace.ops.torch import TorchOps, mixtures
from headrace.ops.torch.matrices import Matrix
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


def kernels(device: torch.device, sizes: KernelSizes, timed: Timer) -> dict[str, Any]:
    """Products, experts and attention."""
    ops = TorchOps(str(device))
    return {
        "products": list(_products(ops, sizes, timed)),
        "experts": list(_experts(ops, sizes, timed)),
        "attention": list(_attention(ops, sizes, timed)),
    }


def _matrix(ops: TorchOps, kind: str, rows: int, width: int) -> Matrix:
    codec = F8_E4M3 if kind == F8_E4M3.name else get_codec(kind)
    data = torch.randint(
        0, 256, (rows, codec.row_bytes(width)), dtype=torch.uint8, device=ops.device
    )
    if codec is not F8_E4M3:
        return Matrix(codec, width, data, kernels=ops.kernels)
    scales = torch.rand((rows, -(-width // 128)), device=ops.device)
    return Matrix(codec, width, data, scales, 128, ops.kernels)


def _result(seconds: float, read: int, operations: int, **rest: Any) -> dict[str, Any]:
    rates = {"bytes_per_s": read / seconds, "ops_per_s": operations / seconds}
    return {**rest, "seconds": seconds, **rates}


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bits, of numbers that are none too."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def _products(ops: TorchOps, sizes: KernelSizes, timed: Timer) -> Iterator[dict[str, Any]]:
    for kind in KINDS:
        matrix = _matrix(ops, kind, sizes.outs, sizes.width)
        x = torch.randn((max(sizes.rows), sizes.width), device=ops.device)
        alone = matrix.times(x[:1])
        for rows in sizes.rows:
            part = x[:rows]
            yield _result(
                timed(lambda part=part, matrix=matrix: matrix.times(part)), matrix.nbytes,  # type: ignore[misc]
                2 * rows * sizes.outs * sizes.width, kind=kind, rows=rows,
                as_alone=_same(matrix.times(part)[:1], alone),
            )  # fmt: skip


def _stack(ops: TorchOps, kind: str, count: int, outs: int, width: int) -> ExpertWeight:
    whole = _matrix(ops, kind, count * outs, width)
    linears = tuple(Linear(whole.part(at * outs, outs)) for at in range(count))
    return ExpertWeight(count, outs, width, kind, whole.nbytes, Stack(whole, linears, None))


def _experts(ops: TorchOps, sizes: KernelSizes, timed: Timer) -> Iterator[dict[str, Any]]:
    count, hidden, width = sizes.experts, sizes.hidden, sizes.expert_width
    for kind in KINDS:
        gate_up = _stack(ops, kind, count, 2 * width, hidden)
        down = _stack(ops, kind, count, hidden, width)
        mlp = ExpertMLP(gate_up, down, "silu")
        most = max(sizes.tokens)
        x = torch.randn((most, hidden), device=ops.device)
        chosen = torch.rand((most, count), device=ops.device).topk(sizes.chosen).indices.int()
        weights = torch.rand((most, sizes.chosen), device=ops.device)

        def run(tokens: int, x=x, mlp=mlp, chosen=chosen, weights=weights) -> torch.Tensor:  # type: ignore[no-untyped-def]
            routes = Routes(chosen[:tokens], weights[:tokens])
            return mixtures.run(x[:tokens], mlp, routes, None, 1.0)

        alone = run(1)
        for tokens in sizes.tokens:
            used = len(chosen[:tokens].unique())
            read = (gate_up.nbytes + down.nbytes) * used // count
            yield _result(
                timed(lambda run=run, tokens=tokens: run(tokens)), read,  # type: ignore[misc]
                6 * tokens * sizes.chosen * hidden * width, kind=kind, tokens=tokens,
                experts=used, as_alone=_same(run(tokens)[:1], alone),
            )  # fmt: skip


def _attention(ops: TorchOps, sizes: KernelSizes, timed: Timer) -> Iterator[dict[str, Any]]:
    shape, block_size = sizes.attention, 64
    for codec in CACHES:
        for context in sizes.contexts:
            blocks, most = -(-context // block_size), max(sizes.requests)
            spec = KVCacheSpec.uniform(
                1, shape.num_kv_heads, shape.head_dim, block_size, most * blocks, codec, codec
            )
            cache = ops.kv_cache(spec)
            q = torch.randn((most, shape.row_width), device=ops.device)
            alone = None
            for count in sizes.requests:
                table = np.arange(count * blocks, dtype=np.int32).reshape(count, blocks)
                ends = np.arange(count + 1, dtype=np.int32)
                last = np.full(count, context - 1, np.int32)
                batch = RaggedBatch(np.zeros(count, np.int32), last, ends, (table,), ends[:-1])
                bound = ops.bind(batch, cache)
                rows = q[:count]
                ops.kv_write(rows, shape, cache, 0, bound)

                def run(rows=rows, cache=cache, bound=bound) -> torch.Tensor:  # type: ignore[no-untyped-def]
                    return ops.paged_attention(rows, shape, cache, 0, bound)

                first = run()[:1]
                alone = first if alone is None else alone
                read = count * context * 2 * shape.num_kv_heads
                yield _result(
                    timed(run), read * KV_CODECS[codec].token_bytes(shape.head_dim),
                    4 * count * context * shape.num_heads * shape.head_dim, kind=codec,
                    context=context, requests=count, as_alone=_same(first, alone),
                )  # fmt: skip
