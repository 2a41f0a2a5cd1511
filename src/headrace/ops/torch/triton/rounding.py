"""Roundings that kernels share, to the bits of docs/kernels.md.

They ask for products and sums that are rounded apart: kernels that call them are launched with
APART.
"""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

APART: Mapping[str, bool] = {"enable_fp_fusion": False}
"""Options of a launch."""


@triton.jit
def nearest(x):
    """The nearest whole number, ties to even, of what is below 2^22 in magnitude: beyond 2^23 a
    float32 has no fraction."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def bf16_bits(x):
    """uint32: the bits of the nearest bfloat16, ties to even. By whole numbers, as Triton's
    interpreter cuts where a device rounds."""
    bits = x.to(tl.uint32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where(x == x, rounded, 0x7FC0)


@triton.jit
def e4m3_bits(x):
    """int32: the bits of the nearest E4M3, ties to even, 448 at most; NaN has those of none."""
    size = tl.minimum(tl.abs(x), 448.0)
    exponent = tl.maximum(size.to(tl.int32, bitcast=True) >> 23, 121)
    # What is added leaves as many bits behind the point as E4M3 has at this exponent: three, and
    # below 2^-6 those of 2^-6.
    more = ((exponent + 20) << 23).to(tl.float32, bitcast=True)
    size = (size + more) - more
    whole = (size.to(tl.int32, bitcast=True) >> 20) - (120 << 3)
    code = tl.where(size < 0.015625, (size * 512.0).to(tl.int32), whole)
    sign = (x.to(tl.uint32, bitcast=True) >> 24).to(tl.int32) & 0x80
    return tl.where(x == x, code, 0x7F) | sign


@triton.jit
def largest(x, axis: tl.constexpr):
    """The largest magnitude along an axis; NaN where there is one."""
    most = tl.max(tl.abs(x), axis=axis)
    spoilt = tl.max((x != x).to(tl.int32), axis=axis)
    return tl.where(spoilt > 0, float("nan"), most)


@triton.jit
def whole_bytes(x):
    """int8 of x / step that is rounded here; 0 for what is no number."""
    rounded = nearest(x)
    return tl.where(tl.abs(rounded) <= 127.0, rounded, 0.0).to(tl.int8)
