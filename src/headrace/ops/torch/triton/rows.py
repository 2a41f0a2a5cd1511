"""Operations on rows in one launch: norms, and rounding to 8 bits for weights that demand it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from headrace.ops.operands import Norm
from headrace.ops.shared import BLOCK, is_centred
from headrace.ops.torch.triton.rounding import APART, largest, whole_bytes

BLOCKS = 32
"""Blocks that a program rounds; a multiple of those that share a scale."""


@triton.jit
def _quantise(x, numbers, scales, sums, blocks, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
              TOGETHER: tl.constexpr, SUMS: tl.constexpr):  # fmt: skip
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    at = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    has = block < blocks
    values = tl.load(x + at, mask=has[:, None], other=0.0)
    most = largest(values, 1)
    if TOGETHER > 1:
        shared = largest(tl.reshape(most, (BLOCKS // TOGETHER, TOGETHER)), 1)
        shared = tl.broadcast_to(shared[:, None], (BLOCKS // TOGETHER, TOGETHER))
        most = tl.reshape(shared, (BLOCKS,))
    inverse = tl.div_rn(tl.full(most.shape, 127.0, tl.float32), most)
    usable = (inverse < float("inf")) | (most != most)
    d = tl.div_rn(most, tl.full(most.shape, 127.0, tl.float32))
    tl.store(scales + block, tl.where(usable, d, 0.0), mask=has)
    whole = whole_bytes(values * tl.where(usable, inverse, 0.0)[:, None])
    tl.store(numbers + at, whole, mask=has[:, None])
    if SUMS:
        tl.store(sums + block, tl.sum(whole.to(tl.int32), axis=1).to(tl.float32), mask=has)


def quantised(
    x: torch.Tensor, size: int, *, with_sums: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """q int8[n, k], d f32[n, k / 32] and the sums of q f32[n, k / 32] where they are wanted: the
    bits of `headrace.ops.torch.rounding.quantised`. Each block has its scale, which those of `size`
    values share."""
    x = x.contiguous()
    numbers = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scales = x.new_empty((len(x), x.shape[1] // BLOCK))
    sums = torch.empty_like(scales) if with_sums else None
    blocks = scales.numel()
    _quantise[(triton.cdiv(blocks, BLOCKS),)](
        x, numbers, scales, sums, blocks, BLOCKS=BLOCKS, BLOCK=BLOCK, TOGETHER=size // BLOCK,
        SUMS=with_sums, num_warps=1, **APART,
    )  # fmt: skip
    return numbers, scales, sums


@triton.jit
def _norm(x, weight, bias, residual, out, stride, out_stride, width, eps, SIZE: tl.constexpr,
          CENTRED: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr):  # fmt: skip
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, SIZE)
    has = at < width
    at += group * width
    values = tl.load(x + row * stride + at, mask=has, other=0.0)
    if CENTRED:
        values = tl.where(has, values - tl.sum(values, axis=0) / width, 0.0)
    mean = tl.sum(values * values, axis=0) / width
    values = values * tl.rsqrt(mean + eps) * tl.load(weight + at, mask=has, other=0.0)
    if BIAS:
        values += tl.load(bias + at, mask=has, other=0.0)
    if RESIDUAL:
        values += tl.load(residual + row * out_stride + at, mask=has, other=0.0)
    tl.store(out + row * out_stride + at, values, mask=has)


def normed(
    x: torch.Tensor, norm: Norm, out: torch.Tensor, *, groups: int = 1,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """out = norm of rows f32[n, width], of each group of columns as if it were a row, plus the
    residual; out may be x. Rows of x and out may lie apart, not those of out beside a residual."""
    rows, width = x.shape
    size = width // groups
    residual = None if residual is None else residual.contiguous()
    if rows:
        most = int(triton.next_power_of_2(size))
        _norm[(rows, groups)](
            x, norm.weight, norm.bias, residual, out, x.stride(0), out.stride(0), size, norm.eps,
            SIZE=most, CENTRED=is_centred(norm), BIAS=norm.bias is not None,
            RESIDUAL=residual is not None, num_warps=max(1, min(8, most // 512)),
        )  # fmt: skip
    return out
