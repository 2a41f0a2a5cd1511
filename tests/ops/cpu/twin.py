"""The arithmetic docs/kernels.md defines for quantised weights, in NumPy, slowly, to the last bit.

Stored blocks are taken apart here a second time, from the fields of the codec's layout, so that an
error of the packed layout and an error of the reader cannot cancel. A fused multiply-add is
emulated exactly: the product of two float32 is exact in float64, the sum is rounded to odd there,
and such a number rounds to float32 as the infinitely precise one does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.weights.codecs import get_codec

F32 = npt.NDArray[np.float32]

NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int32
)
FLOAT4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int32)


class Split(NamedTuple):
    """q: whole numbers int32[rows, tiles, 32]; scale, minimum: float32[rows, tiles, groups]."""

    q: npt.NDArray[np.int32]
    scale: F32
    minimum: F32 | None


def split(name: str, data: npt.NDArray[np.uint8]) -> Split:
    """Rows of stored blocks as values scale * q - minimum; data: uint8[rows, row_bytes]."""
    rows = len(data)
    blocks = data.reshape(-1).view(get_codec(name).layout)
    q, scale, minimum = _split_blocks(name, blocks)
    tiles = q.size // rows // 32

    def of_tiles(values: F32) -> F32:
        return np.ascontiguousarray(values, np.float32).reshape(rows, tiles, -1)

    minimum = None if minimum is None else of_tiles(minimum)
    return Split(q.astype(np.int32).reshape(rows, tiles, 32), of_tiles(scale), minimum)


def _split_blocks(name, blocks):  # type: ignore[no-untyped-def]
    n = len(blocks)
    fields = blocks.dtype.names
    d = blocks["d"].astype(np.float32)[:, None] if "d" in fields else None
    if name == "Q8_0":
        return blocks["qs"], d, None
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
    if name == "IQ4_XS":
        low = _halves(blocks["scales_l"][:, None, :].transpose(0, 2, 1))
        high = [(blocks["scales_h"].astype(np.int32) >> (2 * t)) & 3 for t in range(8)]
        scales = low.reshape(n, 8) + 16 * np.stack(high, axis=1) - 32
        return NONLINEAR[_halves(blocks["qs"].reshape(n, 8, 16))], d * scales, None
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
    if name == "Q2_K":
        return _pairs(blocks["qs"]), d * (packed & 15), dmin * (packed >> 4)
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (rest & 15) + 16 * (first >> 6)], axis=1)
    minimums = np.concatenate([second & 63, (rest >> 4) + 16 * (second >> 6)], axis=1)
    q = _halves(blocks["qs"].reshape(n, 4, 32)).reshape(n, 8, 32)
    if name == "Q5_K":
        q = q + 16 * _bits(blocks["qh"])
    return q, d * scales, dmin * minimums


def _halves(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.int32)


def _pairs(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Of each 32 bytes, bits 0-1 of all of them, then bits 2-3, ..."""
    parts = packed.reshape(len(packed), -1, 1, 32).astype(np.int32)
    return (parts >> np.arange(0, 8, 2)[:, None]) & 3


def _bits(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """int32[n, 8, 32]: bit t of 32 bytes."""
    return (packed[:, None, :].astype(np.int32) >> np.arange(8)[:, None]) & 1


def quantise(x: F32) -> tuple[npt.NDArray[np.int32], F32]:
    """Rows in blocks of 32: whole numbers int32[rows, tiles, 32] and their scales."""
    blocks = x.reshape(len(x), -1, 32)
    peak = np.abs(blocks).max(axis=2)
    d = peak / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(d == 0, np.float32(0), np.float32(127) / peak)
    return np.rint(blocks * inverse[..., None]).astype(np.int32), d


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
