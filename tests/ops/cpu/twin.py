"""The arithmetic docs/kernels.md defines for quantised weights, in NumPy, slowly, to the last bit.

Stored blocks are taken apart here a second time, from the fields of the codec's layout, so that an
error of the packed layout and an error of the reader cannot cancel. A fused multiply-add is
emulated exactly: the product of two float32 is exact in float64, the sum is rounded to odd there,
and such a number rounds to float32 as the infinitely precise one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import gguf
import numpy as np
import numpy.typing as npt

from headrace.weights.codecs import get_codec

F32 = npt.NDArray[np.float32]

NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int32
)
FLOAT4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int32)


BLOCK_SUMMED = ("Q4_K", "IQ4_XS")
"""Kinds whose activations share a scale over a block of 256, and which sum it in whole numbers."""


class Blocks(NamedTuple):
    """What a kind that sums blocks is made of: whole scale and minimum, float32[rows, tiles], times
    d and dmin, float32[rows, tiles / 8]."""

    scale: F32
    d: F32
    minimum: F32 | None
    dmin: F32 | None


class Split(NamedTuple):
    """q: whole numbers int32[rows, tiles, 32]; scale, minimum: float32[rows, tiles, groups]."""

    q: npt.NDArray[np.int32]
    scale: F32
    minimum: F32 | None
    blocks: Blocks | None = None

    @property
    def of_scale(self) -> int:
        """Values of a row of activations that share a scale."""
        return 32 if self.blocks is None else 256


def split(name: str, data: npt.NDArray[np.uint8]) -> Split:
    """Rows of stored blocks as values scale * q - minimum; data: uint8[rows, row_bytes]."""
    rows = len(data)
    blocks = data.reshape(-1).view(get_codec(name).layout)
    q, scale, minimum = _split_blocks(name, blocks)
    tiles = q.size // rows // 32

    def of_tiles(values: F32) -> F32:
        return np.ascontiguousarray(values, np.float32).reshape(rows, tiles, -1)

    def of_blocks(field: str) -> F32 | None:
        if field not in (blocks.dtype.names or ()):
            return None
        return blocks[field].astype(np.float32).reshape(rows, -1)

    whole = None
    if name in BLOCK_SUMMED:
        _, scales, minimums = _whole(name, blocks)
        minimums = None if minimums is None else of_tiles(minimums)[..., 0]
        whole = Blocks(of_tiles(scales)[..., 0], of_blocks("d"), minimums, of_blocks("dmin"))
    minimum = None if minimum is None else of_tiles(minimum)
    return Split(q.astype(np.int32).reshape(rows, tiles, 32), of_tiles(scale), minimum, whole)


def _split_blocks(name, blocks):  # type: ignore[no-untyped-def]
    n = len(blocks)
    if name.startswith(("IQ1", "IQ2", "IQ3")):
        return _split_books(name, blocks.view(np.uint8).reshape(n, -1))
    if name == "NVFP4":
        codes = blocks["d"].astype(np.int64)
        scale = np.array([_half_of_e4m3(code) for code in range(256)])[codes]
        return FLOAT4[_halves(blocks["qs"].reshape(n, 4, 8))], scale, None
    fields = blocks.dtype.names
    d = blocks["d"].astype(np.float32)[:, None] if "d" in fields else None
    if name == "Q8_0":
        return blocks["qs"], d, None
    if name == "Q1_0":
        return 2 * _low_bits(blocks["qs"], 1) - 1, d.repeat(4, axis=1), None
    if name == "Q2_0":
        return _low_bits(blocks["qs"], 2) - 1, d.repeat(2, axis=1), None
    if name == "TQ2_0":
        return _pairs(blocks["qs"]).reshape(n, 8, 32) - 1, d.repeat(8, axis=1), None
    if name == "TQ1_0":
        parts = (blocks["qs"][:, :32], blocks["qs"][:, 32:], blocks["qh"])
        digits = [
            (part.astype(np.int32) * 3**place % 256 * 3) >> 8
            for part, places in zip(parts, (5, 5, 4), strict=True)
            for place in range(places)
        ]
        return np.concatenate(digits, axis=1) - 1, d.repeat(8, axis=1), None
    if name == "MXFP4":
        exponents = blocks["e"].astype(np.int64)
        scale = np.where(exponents < 2, 0, 2.0 ** (exponents - 128.0))  # denormals are zero
        return FLOAT4[_halves(blocks["qs"])], scale, None
    if name == "IQ4_NL":
        return NONLINEAR[_halves(blocks["qs"])], d, None
    if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        q = _halves(blocks["qs"]).astype(np.int32)
        if name[1] == "5":
            q += 16 * np.unpackbits(blocks["qh"], axis=1, bitorder="little").astype(np.int32)
        if name[3] == "1":
            return q, d, -blocks["m"].astype(np.float32)[:, None]
        return q - (16 if name[1] == "5" else 8), d, None
    if name in ("Q4_K", "Q5_K", "IQ4_XS"):
        q, scales, minimums = _whole(name, blocks)
        if minimums is None:
            return q, d * scales, None
        return q, d * scales, blocks["dmin"].astype(np.float32)[:, None] * minimums
    if name == "Q6_K":
        low = _halves(blocks["ql"].reshape(n, 2, 64)).reshape(n, 8, 32)
        high = _pairs(blocks["qh"]).reshape(n, 8, 32)
        return low + 16 * high - 32, d * blocks["scales"].astype(np.float32), None
    if name == "Q3_K":
        packed = blocks["scales"].astype(np.int32)
        scales = [
            (packed[:, j] & 15 if j < 8 else packed[:, j - 8] >> 4)
            + 16 * ((packed[:, 8 + j % 4] >> (2 * (j // 4))) & 3)
            - 32
            for j in range(16)
        ]
        q = _pairs(blocks["qs"]).reshape(n, 8, 32) + 4 * _bits(blocks["hmask"]) - 4
        return q, d * np.stack(scales, axis=1).astype(np.float32), None
    dmin = blocks["dmin"].astype(np.float32)[:, None]
    packed = blocks["scales"].astype(np.int32)
    return _pairs(blocks["qs"]), d * (packed & 15), dmin * (packed >> 4)


def _whole(name, blocks):  # type: ignore[no-untyped-def]
    """q, whole scales and whole minimums of a kind with one group to a tile."""
    n = len(blocks)
    if name == "IQ4_XS":
        low = _halves(blocks["scales_l"][:, None, :].transpose(0, 2, 1))
        high = [(blocks["scales_h"].astype(np.int32) >> (2 * t)) & 3 for t in range(8)]
        scales = low.reshape(n, 8) + 16 * np.stack(high, axis=1) - 32
        return NONLINEAR[_halves(blocks["qs"].reshape(n, 8, 16))], scales, None
    packed = blocks["scales"].astype(np.int32)
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (rest & 15) + 16 * (first >> 6)], axis=1)
    minimums = np.concatenate([second & 63, (rest >> 4) + 16 * (second >> 6)], axis=1)
    q = _halves(blocks["qs"].reshape(n, 4, 32)).reshape(n, 8, 32)
    if name == "Q5_K":
        q = q + 16 * _bits(blocks["qh"])
    return q, scales, minimums


def _split_books(name, raw):  # type: ignore[no-untyped-def]
    """uint8[n, bytes of a block] of a kind with a code book: the books are gguf-py's."""
    kind = getattr(gguf.quants, name)
    kind.init_grid()
    book = kind.grid.reshape(kind.grid_shape).astype(np.int32)
    n, word = len(raw), raw.astype(np.int64)

    def u16(at: int, count: int) -> npt.NDArray[np.int64]:
        return word[:, at : at + 2 * count : 2] + 256 * word[:, at + 1 : at + 2 * count : 2]

    def nibbles(at: int, count: int) -> npt.NDArray[np.int64]:
        return np.stack([(word[:, at + j // 2] >> 4 * (j % 2)) & 15 for j in range(count)], 1)

    if name.startswith("IQ1"):
        eighths, factor = 8 * book, 0.125
        if name == "IQ1_S":
            d, high = raw[:, :2], u16(34, 8)
            codes = [
                word[:, 2 + j] + 256 * ((high[:, j // 4] >> 3 * (j % 4)) & 7) for j in range(32)
            ]
            scales = high >> 12 & 7
            shifts = np.repeat(high >> 15, 4, axis=1)
        else:
            packed, high = u16(48, 4), nibbles(32, 32)
            d = sum((packed[:, i] >> 12) << 4 * i for i in range(4)).astype("<u2")
            d = d[:, None].view(np.uint8)
            codes = [word[:, j] + 256 * (high[:, j] & 7) for j in range(32)]
            scales = np.stack([(packed[:, g // 4] >> 3 * (g % 4)) & 7 for g in range(16)], 1)
            shifts = high >> 3
        q = eighths[np.stack(codes, 1)] + np.where(shifts, -1, 1)[..., None]
    else:
        d, factor = raw[:, :2], {"IQ2": 0.125, "IQ3": 0.25}[name[:3]]
        if name.endswith("XXS"):
            first, step = (6, 8) if name == "IQ2_XXS" else (66, 4)
            words = [
                sum(word[:, first + step * t + i] << 8 * i for i in range(4)) for t in range(8)
            ]
            signs = [_even(words[j // 4] >> 7 * (j % 4)) for j in range(32)]
            scales = np.stack(words, 1) >> 28
            at = [2 + j + (4 * (j // 4) if name == "IQ2_XXS" else 0) for j in range(len(book) // 4)]
            codes = word[:, at[: 32 if name == "IQ2_XXS" else 64]]
        elif name == "IQ2_XS":
            both = u16(2, 32)
            codes, scales = both & 511, nibbles(66, 16)
            signs = [_even(both[:, j] >> 9) for j in range(32)]
        elif name == "IQ2_S":
            codes = np.stack(
                [
                    word[:, 2 + j] + 256 * ((word[:, 66 + j // 4] >> 2 * (j % 4)) & 3)
                    for j in range(32)
                ],
                1,
            )
            signs, scales = [word[:, 34 + j] for j in range(32)], nibbles(74, 16)
        else:
            codes = np.stack(
                [word[:, 2 + j] + 256 * ((word[:, 66 + j // 8] >> j % 8) & 1) for j in range(64)], 1
            )
            signs, scales, factor = [word[:, 74 + j] for j in range(32)], nibbles(106, 8), 1.0
        negative = np.stack([(byte >> bit) & 1 for byte in signs for bit in range(8)], 1)
        q = book[codes].reshape(n, 256) * np.where(negative, -1, 1)
    d = np.ascontiguousarray(d).view("<f2").astype(np.float32)
    return q.reshape(n, 8, 32), d * np.float32(factor) * (2 * scales + 1).astype(np.float32), None


def _even(code: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Eight sign bits of the lowest seven: an even number of them is set."""
    seven = code & 127
    return seven | (sum(seven >> bit for bit in range(7)) & 1) << 7


def _half_of_e4m3(code: int) -> float:
    exponent, rest = code >> 3 & 15, code & 7
    if code == 0x7F:
        return 0.0
    return rest * 2.0**-10 if exponent == 0 else (8 + rest) * 2.0 ** (exponent - 11)


def _low_bits(packed: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.int32]:
    """Whole numbers of `bits` bits, the lowest of a byte first; tiles of 32."""
    shifts = np.arange(0, 8, bits)
    values = (packed[..., None].astype(np.int32) >> shifts) & (1 << bits) - 1
    return values.reshape(len(packed), -1, 32)


def _halves(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.int32)


def _pairs(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Of each 32 bytes, bits 0-1 of all of them, then bits 2-3, ..."""
    parts = packed.reshape(len(packed), -1, 1, 32).astype(np.int32)
    return (parts >> np.arange(0, 8, 2)[:, None]) & 3


def _bits(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """int32[n, 8, 32]: bit t of 32 bytes."""
    return (packed[:, None, :].astype(np.int32) >> np.arange(8)[:, None]) & 1


def quantise(x: F32, size: int = 32) -> tuple[npt.NDArray[np.int32], F32]:
    """Rows in tiles of 32, `size` values of which share a scale: whole numbers
    int32[rows, tiles, 32] and the scales of the tiles."""
    blocks = x.reshape(len(x), -1, size)
    peak = np.abs(blocks).max(axis=2)
    d = peak / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(d == 0, np.float32(0), np.float32(127) / peak)
    q = np.rint(blocks * inverse[..., None]).astype(np.int32)
    return q.reshape(len(x), -1, 32), d.repeat(size // 32, axis=1)


def fused(a: F32, b: F32, c: F32) -> F32:
    """a * b + c, rounded once."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    bits = np.atleast_1d(total).view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    bits = np.where((error != 0) & (bits % 2 == 0), bits + step, bits)
    return bits.view(np.float64).astype(np.float32)


def apart(a: F32, b: F32, c: F32) -> F32:
    """a * b + c, the product rounded and then the sum."""
    return np.asarray(a * b + c, np.float32)


def product(weights: Split, x: F32, level: str) -> F32:
    """float32[rows of x, rows of weights]; the portable level rounds products and sums apart."""
    fma = apart if level == "portable" else fused
    if weights.blocks is not None:
        return _block_product(weights, weights.blocks, x, fma)
    q, d = quantise(x)
    groups = weights.scale.shape[2]
    size = 32 // groups
    total = np.zeros((len(x), len(weights.q)), np.float32)
    for tile in range(q.shape[1]):
        dx = d[:, tile, None]
        for group in range(groups):
            part = slice(group * size, (group + 1) * size)
            of_x = q[:, tile, part]
            n = (of_x @ weights.q[:, tile, part].T).astype(np.float32)
            total = fma(n, weights.scale[None, :, tile, group] * dx, total)
            if weights.minimum is not None:
                summed = of_x.sum(axis=1, keepdims=True).astype(np.float32) * dx
                total = fma(-weights.minimum[None, :, tile, group], summed, total)
    return total


def _block_product(weights: Split, blocks: Blocks, x: F32, fma: Callable[..., F32]) -> F32:
    q, d = quantise(x, 256)
    total = np.zeros((len(x), len(weights.q)), np.float32)
    for first in range(0, q.shape[1], 8):
        part, least = np.zeros_like(total), np.zeros(total.shape, np.int64)
        for tile in range(first, first + 8):
            n = (q[:, tile] @ weights.q[:, tile].T).astype(np.float32)
            part = fma(n, blocks.scale[None, :, tile], part)
            if blocks.minimum is not None:
                of_tile = blocks.minimum[None, :, tile].astype(np.int64)
                least += q[:, tile].sum(axis=1, keepdims=True) * of_tile
        scaled = part * blocks.d[None, :, first // 8]
        if blocks.dmin is not None:
            scaled = fma(-least.astype(np.float32), blocks.dmin[None, :, first // 8], scaled)
        total = fma(scaled, d[:, first, None], total)
    return total
