"""K and V as they are stored: encoded, decoded and turned; docs/kernels.md has the arithmetic."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from headrace.ops.kv import KVCodec
from headrace.ops.torch.decoders.tables import looked_up
from headrace.ops.torch.rounding import quotient
from headrace.weights.codecs.float8 import VALUES

LEAST_NORMAL = 2.0**-126
"""Scales below are zero: denormals are flushed."""
MOST_E4M3 = 448.0
LANES = 16

_FACTORS = tuple(
    factor for step in range(8) for factor in ((8 + step / 2) / 8, (7 + step / 2) / -8)
)
"""Tried for four bits; all are exact in float32."""


class StoredHeads(NamedTuple):
    """Heads as they are stored, both as bytes of the pool's type."""

    codes: torch.Tensor
    """[..., width] in the codec's type; of four bits uint8[..., width / 2], the second of two
    neighbours in the upper half."""
    scales: torch.Tensor | None
    """f32[...]; None where the codec has none."""


def value_type(codec: KVCodec) -> torch.dtype:
    """The type of stored values; of four bits two lie in a byte."""
    return {
        "f32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.uint8, "int8": torch.int8,
        "q8_0": torch.int8, "q4_0": torch.uint8,
    }[codec]  # fmt: skip


def encode(codec: KVCodec, heads: torch.Tensor) -> StoredHeads:
    """Heads f32[..., width] as they are stored, those of rotated kinds turned already.

    A scale that would be denormal is zero, and so are its codes.
    """
    if codec in ("f32", "bf16"):
        return StoredHeads(heads.to(value_type(codec)), None)
    if codec == "fp8":
        bounded = heads.clamp(-MOST_E4M3, MOST_E4M3)
        return StoredHeads(bounded.to(torch.float8_e4m3fn).view(torch.uint8), None)
    if codec == "q4_0":
        return _four_bits(heads)
    most = heads.abs().amax(dim=-1)
    scales = _flushed(quotient(most, 127.0, most))
    factors = torch.where(scales == 0, 0.0, quotient(127.0, most, most))
    whole = (heads * factors[..., None]).round().nan_to_num(0.0, 0.0, 0.0)
    return StoredHeads(whole.to(torch.int8), scales)


def decode(
    codec: KVCodec, codes: torch.Tensor, scales: torch.Tensor | None, of_layer: float
) -> torch.Tensor:
    """f32[..., width] of stored codes; of_layer: what fp8 stores is multiplied by."""
    if codec == "fp8":
        return looked_up(_E4M3_NUMBERS, codes) * of_layer
    if codec == "q4_0":
        halves = torch.stack([codes & 15, codes >> 4], dim=-1)
        codes = halves.flatten(-2).float() - 8
    values = codes.float()
    return values if scales is None else values * scales[..., None]


def _four_bits(heads: torch.Tensor) -> StoredHeads:
    """q in [-8, 7] and the scale with which they come nearest to x, of all that _FACTORS give."""
    most = heads.abs().amax(dim=-1)
    extreme = torch.where(heads.amax(dim=-1) == most, most, -most)
    step = _flushed(extreme / -8)
    x = heads * torch.where(step == 0, 0.0, -8 / extreme)[..., None]
    found: torch.Tensor | None = None
    codes = scales = torch.empty(0)
    for factor in _FACTORS:
        q = (x * factor).round().clamp(-8, 7)
        s, n = _lane_sum(q * x), _lane_sum(q * q)
        explains = torch.where(step.isfinite() & (step != 0), s * s / n, 0.0).nan_to_num(0.0)
        if found is None:
            # Where none explains anything the first is taken, with its own step.
            found, codes, scales = torch.zeros_like(explains), q, step
        better = explains > found
        found = torch.where(better, explains, found)
        codes = torch.where(better[..., None], q, codes)
        scales = torch.where(better, s / n * step, scales)
    numbers = (codes.nan_to_num(0.0, 0.0, 0.0) + 8).to(torch.uint8)
    pairs = numbers.unflatten(-1, (-1, 2))
    return StoredHeads(pairs[..., 0] | (pairs[..., 1] << 4), _flushed(scales))


def _lane_sum(x: torch.Tensor) -> torch.Tensor:
    """Sums of the last axis: 16 lanes side by side in ascending order, then halves of the lanes."""
    x = torch.nn.functional.pad(x, (0, -x.shape[-1] % LANES))
    lanes = torch.zeros_like(x[..., :LANES])
    for at in range(0, x.shape[-1], LANES):
        lanes = lanes + x[..., at : at + LANES]
    half = LANES
    while half > 1:
        half //= 2
        lanes = lanes[..., :half] + lanes[..., half : 2 * half]
    return lanes[..., 0]


def _flushed(scales: torch.Tensor) -> torch.Tensor:
    """Scales with zero for those that are denormal."""
    return torch.where(scales.abs() < LEAST_NORMAL, 0.0, scales)


def turned(heads: torch.Tensor) -> torch.Tensor:
    """Heads f32[..., width] turned by a Hadamard matrix, which is its own inverse, in blocks of the
    largest power of two that divides the width.
    """
    width = heads.shape[-1]
    block = width & -width
    x = heads.reshape(-1, block)
    stride = 1
    while stride < block:
        pairs = x.reshape(-1, block // (2 * stride), 2, stride)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        x = torch.stack((low + high, low - high), dim=2).reshape(-1, block)
        stride *= 2
    factor = torch.tensor(1 / math.sqrt(block), dtype=torch.float32, device=heads.device)
    return (x * factor).reshape(heads.shape)


_E4M3_NUMBERS = VALUES.copy()
# What no number is, is read as the largest one's neighbour.
_E4M3_NUMBERS[0x7F], _E4M3_NUMBERS[0xFF] = 480.0, -480.0
