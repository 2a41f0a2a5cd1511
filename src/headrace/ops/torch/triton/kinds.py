"""Stored kinds of weights as kernels read them: for each a function from bytes to numbers, and what
a product has to know beside it.

An unpacker is handed where rows of the matrix begin, int64[outs], which step of k is wanted, which
outputs there are, and the width of a row, at which floats may end within a step. It gives numbers
[step, outs], what they are multiplied by, f32[outs] for each half of the step, and the minimum that
is taken away, f32[outs]. Layouts are those of `headrace.weights.codecs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import triton
import triton.language as tl


@triton.jit
def _half(data, at, has):
    """The F16 of two bytes at any address, as float32."""
    low = tl.load(data + at, mask=has, other=0).to(tl.uint16)
    high = tl.load(data + at + 1, mask=has, other=0).to(tl.uint16)
    return (low | (high << 8)).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _bytes(data, at, first, has):
    """[k, outs] of rows that begin at `at`, and bytes `first` of each: as int32."""
    return tl.load(data + at[None, :] + first[:, None], mask=has[None, :], other=0).to(tl.int32)


@triton.jit
def _q8_0(data, row, step, has, width):
    at = row + step * 34
    s = _half(data, at, has)
    numbers = _bytes(data, at, 2 + tl.arange(0, 32), has)
    return numbers.to(tl.int8), s, s, s


@triton.jit
def _sixteen_bytes(data, at, has):
    """Of 16 bytes the low halves, then the high ones: int32[32, outs]."""
    k = tl.arange(0, 32)
    return (_bytes(data, at, k % 16, has) >> (4 * (k // 16))[:, None]) & 15


@triton.jit
def _q4_0(data, row, step, has, width):
    at = row + step * 18
    s = _half(data, at, has)
    return (_sixteen_bytes(data, at + 2, has) - 8).to(tl.int8), s, s, s


@triton.jit
def _mxfp4(data, row, step, has, width):
    at = row + step * 17
    exponent = tl.load(data + at, mask=has, other=0).to(tl.int32)
    # 2^(e - 128); the two smallest would be denormal, and are zeros to every kernel.
    s = (tl.where(exponent > 1, exponent - 1, 0) << 23).to(tl.float32, bitcast=True)
    codes = _sixteen_bytes(data, at + 1, has)
    size, odd = (codes & 7) >> 1, codes & 1
    doubled = tl.where(size == 0, odd, (2 + odd) << tl.maximum(size - 1, 0))
    return tl.where(codes < 8, doubled, -doubled).to(tl.int8), s, s, s


@triton.jit
def _q4_k(data, row, step, has, width):
    at = row + (step // 8) * 144
    part = step % 8
    # Six bits of each scale and minimum: of the first four in a byte of their own, of the others
    # four in a byte of two and two at the top of those.
    first = tl.load(data + at + 4 + part % 4, mask=has, other=0).to(tl.int32)
    second = tl.load(data + at + 8 + part % 4, mask=has, other=0).to(tl.int32)
    rest = tl.load(data + at + 12 + part % 4, mask=has, other=0).to(tl.int32)
    scale = tl.where(part < 4, first & 63, (rest & 15) | ((first >> 2) & 48))
    minimum = tl.where(part < 4, second & 63, (rest >> 4) | ((second >> 2) & 48))
    s = _half(data, at, has) * scale.to(tl.float32)
    m = _half(data, at + 2, has) * minimum.to(tl.float32)
    codes = _bytes(data, at, 16 + 32 * (part // 2) + tl.arange(0, 32), has)
    return ((codes >> (4 * (part % 2))) & 15).to(tl.int8), s, s, m


@triton.jit
def _q6_k(data, row, step, has, width):
    at = row + (step // 8) * 210
    part, quarter, k = step % 8, step % 4, tl.arange(0, 32)
    low = _bytes(data, at, 64 * (part // 4) + 32 * (quarter % 2) + k, has) >> (4 * (quarter // 2))
    high = _bytes(data, at, 128 + 32 * (part // 4) + k, has) >> (2 * quarter)
    numbers = ((low & 15) | ((high & 3) << 4)) - 32
    d = _half(data, at + 208, has)
    first = tl.load(data + at + 192 + 2 * part, mask=has, other=0).to(tl.int8, bitcast=True)
    second = tl.load(data + at + 193 + 2 * part, mask=has, other=0).to(tl.int8, bitcast=True)
    return numbers.to(tl.int8), d * first.to(tl.float32), d * second.to(tl.float32), d


@triton.jit
def e4m3(codes):
    """Numbers of E4M3, int32, as float32: as those of F16 with the same bits they are 2^-8 of it.
    What no number is, is 480."""
    bits = ((codes & 0x80) << 8) | ((codes & 0x7F) << 7)
    return bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32) * 256.0


@triton.jit
def _f8_e4m3(data, row, step, has, width):
    k = step * 128 + tl.arange(0, 128)
    inside = has[None, :] & (k < width)[:, None]
    codes = tl.load(data + row[None, :] + k[:, None], mask=inside, other=0).to(tl.int32)
    numbers = tl.where((codes & 0x7F) == 0x7F, float("nan"), e4m3(codes))
    one = tl.full(row.shape, 1.0, tl.float32)
    return numbers, one, one, one


@triton.jit
def _bf16(data, row, step, has, width):
    k = step * 128 + tl.arange(0, 128)
    inside = has[None, :] & (k < width)[:, None]
    words = data.to(tl.pointer_type(tl.uint16), bitcast=True)
    bits = tl.load(words + (row // 2)[None, :] + k[:, None], mask=inside, other=0)
    numbers = (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    one = tl.full(row.shape, 1.0, tl.float32)
    return numbers, one, one, one


class Kind(NamedTuple):
    """A stored kind: what a product has to know of it."""

    unpack: Any
    """The function, in Triton."""
    step: int = 32
    """Values of k that one call unpacks; a row is whole steps, but for floats."""
    halves: bool = False
    """Whether the two halves of a step have scales of their own."""
    minimum: bool = False
    """Whether a minimum is taken away."""
    floats: bool = False
    """Whether numbers are floats, exact in bfloat16, that meet bfloat16; otherwise they are bytes
    that meet bytes."""
    library: bool = False
    """Whether products of one matrix are a library's, and only those of a stack of them ours."""


KINDS: Mapping[str, Kind] = {
    "Q8_0": Kind(_q8_0),
    "Q4_0": Kind(_q4_0),
    "MXFP4": Kind(_mxfp4),
    "Q4_K": Kind(_q4_k, minimum=True),
    "Q6_K": Kind(_q6_k, halves=True),
    "F8_E4M3": Kind(_f8_e4m3, step=128, floats=True),
    "BF16": Kind(_bf16, step=128, floats=True, library=True),
}
"""By the codec's name, those that kernels read."""
