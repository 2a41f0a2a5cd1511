"""Norms and rotation of heads and the writing of K and V, in one launch: a program for each head of
each token. What is stored has the bits of the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from headrace.ops.kv import AttentionShape, KVCodec
from headrace.ops.operands import Norm
from headrace.ops.torch.kv_pool import StoredKV, StoredPart
from headrace.ops.torch.triton.rounding import (
    APART,
    bf16_bits,
    e4m3_bits,
    largest,
    whole_bytes,
)

F32, BF16, FP8, BYTES = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)

WRITTEN: Mapping[KVCodec, int] = {"f32": 0, "bf16": 1, "fp8": 2, "int8": 3, "q8_0": 3}
"""What is written here. Four bits, whose 16 steps are sums in an order, are left to PyTorch."""


class Rotation(NamedTuple):
    """The rotation of the tokens of a batch, and the norms before it."""

    cos: torch.Tensor
    """f32[positions, rotary_dim / 2]"""
    sin: torch.Tensor
    positions: torch.Tensor
    """int64[N]"""
    q_norm: Norm | None
    k_norm: Norm | None


@triton.jit
def _normed(x, weight, eps, at, has, width):
    mean = tl.sum(x * x, axis=0) / width
    return x * tl.rsqrt(mean + eps) * tl.load(weight + at, mask=has, other=0.0)


@triton.jit
def _write(x, at, has, codes, scales, strides, block, slot, head, of_layer, factor,
           KIND: tl.constexpr, TURNS: tl.constexpr):  # fmt: skip
    """Store a head f32[size]; what lies past its width is zero."""
    for turn in tl.static_range(TURNS):
        other = tl.gather(x, at ^ (1 << turn), 0)
        x = tl.where(((at >> turn) & 1) == 0, x + other, other - x)
    if TURNS > 0:
        x = x * factor
    place = codes + block * strides[0] + slot * strides[1] + head * strides[2] + at
    if KIND == F32:
        tl.store(place, x, mask=has)
    elif KIND == BF16:
        tl.store(place, bf16_bits(x).to(tl.uint16).to(tl.int16, bitcast=True), mask=has)
    elif KIND == FP8:
        x = tl.div_rn(x, tl.zeros_like(x) + of_layer)
        tl.store(place, e4m3_bits(x).to(tl.uint8), mask=has)
    else:
        most = largest(x, 0)
        steps = tl.full([], 127.0, tl.float32)
        d = tl.div_rn(most, steps)
        # Denormal scales are zeros.
        d = tl.where(d < 1.1754943508222875e-38, 0.0, d)
        inverse = tl.where(d == 0.0, 0.0, tl.div_rn(steps, most))
        tl.store(place, whole_bytes(x * inverse), mask=has)
        tl.store(scales + block * strides[3] + slot * strides[4] + head * strides[5], d)


@triton.jit
def _kernel(
    qkv, cos, sin, positions, q_weight, k_weight, blocks, slots,
    k, k_scales, k_strides, v, v_scales, v_strides,
    row_width, first_head, heads, kv_heads, head_dim, value_dim, half, q_eps, k_eps,
    k_of_layer, v_of_layer, k_factor, v_factor,
    DIMS: tl.constexpr, VALUES: tl.constexpr, ROTATE: tl.constexpr, Q_NORM: tl.constexpr,
    K_NORM: tl.constexpr, K_KIND: tl.constexpr, V_KIND: tl.constexpr, K_TURNS: tl.constexpr,
    V_TURNS: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1) + first_head
    block, slot = tl.load(blocks + token), tl.load(slots + token)
    row = qkv + token * row_width
    if head < heads + kv_heads:
        at = tl.arange(0, DIMS)
        has = at < head_dim
        x = tl.load(row + head * head_dim + at, mask=has, other=0.0)
        if ROTATE:
            if head < heads:
                if Q_NORM:
                    x = _normed(x, q_weight, q_eps, at, has, head_dim)
            else:
                if K_NORM:
                    x = _normed(x, k_weight, k_eps, at, has, head_dim)
            turned = at < 2 * half
            low = at < half
            angle = tl.load(positions + token) * half + tl.where(low, at, at - half)
            c = tl.load(cos + angle, mask=turned, other=1.0)
            s = tl.load(sin + angle, mask=turned, other=0.0)
            pair = tl.where(turned, tl.where(low, at + half, at - half), at)
            other = tl.gather(x, pair, 0)
            rotated = tl.where(low, x * c - other * s, x * c + other * s)
            x = tl.where(turned, rotated, x)
            tl.store(row + head * head_dim + at, x, mask=has)
        if head >= heads:
            _write(x, at, has, k, k_scales, k_strides, block, slot, head - heads, k_of_layer,
                   k_factor, K_KIND, K_TURNS)  # fmt: skip
    else:
        at = tl.arange(0, VALUES)
        has = at < value_dim
        number = head - heads - kv_heads
        place = row + (heads + kv_heads) * head_dim + number * value_dim + at
        x = tl.load(place, mask=has, other=0.0)
        _write(x, at, has, v, v_scales, v_strides, block, slot, number, v_of_layer, v_factor,
               V_KIND, V_TURNS)  # fmt: skip


def takes(stored: StoredKV) -> bool:
    """Whether what is stored so is written here; what is near is a bfloat16 beside it."""
    return stored.k.codec in WRITTEN and stored.values.codec in WRITTEN


def place(
    qkv: torch.Tensor, shape: AttentionShape, stored: StoredKV, blocks: torch.Tensor,
    slots: torch.Tensor, rotation: Rotation | None = None,
) -> None:  # fmt: skip
    """Norm and rotate q and k heads of qkv f32[N, row_width] in place, where there is a rotation,
    and store k and v heads, those of token i in a slot, int64[N], of blocks[i]."""
    if not len(qkv):
        return
    k, v = stored.k, stored.values
    k_turns, v_turns = _turns(k, shape.head_dim), _turns(v, shape.value_width)
    rotates = rotation is not None
    first = 0 if rotates else shape.num_heads
    heads = shape.num_heads + (1 if shape.latent else 2) * shape.num_kv_heads
    cos, sin, positions, q_norm, k_norm = rotation or (None, None, None, None, None)
    most = int(triton.next_power_of_2(max(shape.head_dim, shape.value_width)))
    _kernel[(len(qkv), heads - first)](
        qkv, cos, sin, positions,
        None if q_norm is None else q_norm.weight, None if k_norm is None else k_norm.weight,
        blocks, slots,
        _codes(k), k.scales, strides_of(k), _codes(v), v.scales, strides_of(v),
        qkv.stride(0), first, shape.num_heads, shape.num_kv_heads, shape.head_dim,
        shape.value_width, 0 if cos is None else cos.shape[1],
        0.0 if q_norm is None else q_norm.eps, 0.0 if k_norm is None else k_norm.eps,
        k.of_layer, v.of_layer, 2.0 ** (-k_turns / 2), 2.0 ** (-v_turns / 2),
        DIMS=int(triton.next_power_of_2(shape.head_dim)),
        VALUES=int(triton.next_power_of_2(shape.value_width)), ROTATE=rotates,
        Q_NORM=q_norm is not None, K_NORM=k_norm is not None,
        K_KIND=WRITTEN[k.codec], V_KIND=WRITTEN[v.codec], K_TURNS=k_turns, V_TURNS=v_turns,
        num_warps=max(1, min(4, most // 256)), **APART,
    )  # fmt: skip


def _turns(part: StoredPart, width: int) -> int:
    """Steps of the Hadamard matrix: the twos that divide the width."""
    return (width & -width).bit_length() - 1 if part.turned else 0


def _codes(part: StoredPart) -> torch.Tensor:
    """Where they are written: bfloat16 by its bits."""
    return part.codes.view(torch.int16) if part.codec == "bf16" else part.codes


def strides_of(part: StoredPart) -> tuple[int, ...]:
    """Of blocks, slots and heads: of codes, and of scales."""
    scales = (0, 0, 0) if part.scales is None else part.scales.stride()
    return (*part.codes.stride()[:3], *scales)
