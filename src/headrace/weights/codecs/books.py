"""Codecs of 256 values whose runs of 4 or 8 are points of a code book: IQ1, IQ2 and IQ3.

An index names a point of the book (`code_books`), eight bits of it in `qs` and the rest elsewhere.
IQ2 and IQ3 have magnitudes in the book and signs beside it: in the kinds ending in XS and XXS seven
of eight values have a sign bit, and the eighth makes the number of negative ones even. IQ1 has -1,
0 and 1 in the book, and a bit says whether 1/8 is added or subtracted. A scale is d times an odd
number, and every product is exact in float32, so no order of operations has to be kept.

Which codes are stored is searched for (`points`).

Sources: ggml-common.h (layouts, ksigns_iq2xs), gguf-py quants.py (bit order).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.weights.codecs.code_books import code_book
from headrace.weights.codecs.codec import Blocks, Bytes, Codec, Floats, f32_column
from headrace.weights.codecs.points import PointCodes, encoded_points

ELEMENTS = 256
_NIBBLES = np.array([0, 4], np.uint8)
_PAIRS = np.arange(0, 8, 2, dtype=np.uint8)
_BITS = np.arange(8, dtype=np.uint8)
_SEVENS = np.arange(0, 28, 7, dtype=np.uint32)
_THREES = np.arange(0, 12, 3, dtype=np.uint16)

# 8 sign bits of 7: the eighth is set where an odd number of the others is.
_SEVEN = np.arange(128, dtype=np.uint8)
_ODD = np.unpackbits(_SEVEN[:, None], axis=1).sum(axis=1, dtype=np.uint8) & np.uint8(1)
SIGNS = _SEVEN | (_ODD << np.uint8(7))


def _points(name: str, levels: list[int]) -> Floats:
    return np.array(levels, np.float32)[code_book(name)]


_IQ2_LEVELS = [8, 25, 43]
IQ2_XXS_POINTS = _points("IQ2_XXS", _IQ2_LEVELS)
IQ2_XS_POINTS = _points("IQ2_XS", _IQ2_LEVELS)
IQ2_S_POINTS = _points("IQ2_S", _IQ2_LEVELS)
IQ3_XXS_POINTS = _points("IQ3_XXS", [4, 12, 20, 28, 36, 44, 52, 62])
IQ3_S_POINTS = _points("IQ3_S", [1, 3, 5, 7, 9, 11, 13, 15])
IQ1_POINTS = _points("IQ1_S", [-1, 0, 1])


def _odd(numbers: npt.NDArray[Any]) -> Floats:
    """2 s + 1 of small whole numbers s."""
    odd: Floats = numbers.astype(np.float32) * np.float32(2) + np.float32(1)
    return odd


def _split(packed: Bytes, shifts: Bytes) -> Bytes:
    """uint8[n, bytes * shifts]: each byte shifted right by each shift in turn, nothing masked."""
    return (packed[..., None] >> shifts).reshape(len(packed), -1)


def _signs_of(words: npt.NDArray[np.uint32]) -> Bytes:
    """uint8[n, 32]: the sign bits of 32 runs of words uint32[n, 8], seven bits a run."""
    signs: Bytes = SIGNS[(words[..., None] >> _SEVENS).reshape(len(words), 32) & np.uint32(127)]
    return signs


def _signed(points: Floats, signs: Bytes) -> Floats:
    """The points with signs uint8[n, 32], a bit for each value from the lowest on; in place."""
    values = points.reshape(len(points), -1, 8)
    negative = np.unpackbits(signs, axis=-1, bitorder="little").reshape(values.shape)
    np.negative(values, out=values, where=negative.view(np.bool_))
    return points


def _store(scales: Floats, values: Floats, out: Floats) -> None:
    """Scales float32[n, groups] times values float32[n, ...], each group as long."""
    n, groups = scales.shape
    np.multiply(scales[..., None], values.reshape(n, groups, -1), out=out.reshape(n, groups, -1))


def _decode_iq2_xxs(blocks: Blocks, out: Floats) -> None:
    groups = blocks["groups"]
    words = groups["signs"]
    scales = f32_column(blocks, "d") * _odd(words >> 28) * np.float32(0.125)
    _store(scales, _signed(IQ2_XXS_POINTS[groups["qs"]], _signs_of(words)), out)


def _decode_iq2_xs(blocks: Blocks, out: Floats) -> None:
    codes = blocks["qs"]
    scales = _odd(_split(blocks["scales"], _NIBBLES) & 15)
    points = _signed(IQ2_XS_POINTS[codes & 511], SIGNS[codes >> 9])
    _store(f32_column(blocks, "d") * scales * np.float32(0.125), points, out)


def _decode_iq2_s(blocks: Blocks, out: Floats) -> None:
    high = (_split(blocks["qh"], _PAIRS) & 3).astype(np.uint16)
    scales = _odd(_split(blocks["scales"], _NIBBLES) & 15)
    points = _signed(IQ2_S_POINTS[blocks["qs"] | high << np.uint16(8)], blocks["signs"])
    _store(f32_column(blocks, "d") * scales * np.float32(0.125), points, out)


def _decode_iq3_xxs(blocks: Blocks, out: Floats) -> None:
    words = blocks["signs"]
    scales = f32_column(blocks, "d") * _odd(words >> 28) * np.float32(0.25)
    _store(scales, _signed(IQ3_XXS_POINTS[blocks["qs"]], _signs_of(words)), out)


def _decode_iq3_s(blocks: Blocks, out: Floats) -> None:
    high = (_split(blocks["qh"], _BITS) & 1).astype(np.uint16)
    scales = f32_column(blocks, "d") * _odd(_split(blocks["scales"], _NIBBLES) & 15)
    points = _signed(IQ3_S_POINTS[blocks["qs"] | high << np.uint16(8)], blocks["signs"])
    _store(scales, points, out)


def _decode_iq1_s(blocks: Blocks, out: Floats) -> None:
    n, words = len(blocks), blocks["qh"]
    high = (words[..., None] >> _THREES).reshape(n, 32) & 7
    shift = np.where(words >> 15, np.float32(-0.125), np.float32(0.125))
    points = IQ1_POINTS[blocks["qs"] | high << np.uint16(8)].reshape(n, 8, 32) + shift[..., None]
    _store(f32_column(blocks, "d") * _odd((words >> 12) & 7), points, out)


def _decode_iq1_m(blocks: Blocks, out: Floats) -> None:
    n, words = len(blocks), blocks["scales"]
    # The F16 is in the four high bits of the words, its lowest four in the first.
    parts = (words >> 12) << np.arange(0, 16, 4, dtype=np.uint16)
    d = np.bitwise_or.reduce(parts, axis=1).astype("<u2").view("<f2").astype(np.float32)
    high = _split(blocks["qh"], _NIBBLES)
    shift = np.where(high & 8, np.float32(-0.125), np.float32(0.125))
    codes = blocks["qs"] | (high & 7).astype(np.uint16) << np.uint16(8)
    scales = _odd((words[..., None] >> _THREES).reshape(n, 16) & 7)
    _store(d[:, None] * scales, IQ1_POINTS[codes] + shift[..., None], out)


def _joined(parts: Bytes, bits: int) -> Bytes:
    """uint8[n, k * bits / 8] of uint8[n, k]: numbers of so many bits, the first the lowest."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    each = parts.reshape(len(parts), -1, 8 // bits) << shifts
    joined: Bytes = np.bitwise_or.reduce(each, axis=2)
    return joined


def _high(found: PointCodes) -> Bytes:
    return (found.points >> np.uint16(8)).astype(np.uint8)


def _sign_words(found: PointCodes) -> npt.NDArray[np.uint32]:
    """uint32[n, 8]: seven of eight sign bits of four runs, and the scale in the highest four."""
    sevens = (found.signs & np.uint8(127)).reshape(-1, 8, 4).astype(np.uint32) << _SEVENS
    words: npt.NDArray[np.uint32] = np.bitwise_or.reduce(sevens, axis=2)
    return words | found.scales.astype(np.uint32) << np.uint32(28)


def _encode_iq2_xxs(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded_points("IQ2_XXS", values, weights)
    blocks["d"] = found.d
    blocks["groups"]["qs"] = found.points.reshape(-1, 8, 4)
    blocks["groups"]["signs"] = _sign_words(found)


def _encode_iq2_xs(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded_points("IQ2_XS", values, weights)
    blocks["d"] = found.d
    seven = (found.signs & np.uint8(127)).astype(np.uint16)
    blocks["qs"] = found.points | seven << np.uint16(9)
    blocks["scales"] = _joined(found.scales, 4)


def _encode_iq2_s(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded_points("IQ2_S", values, weights)
    blocks["d"] = found.d
    blocks["qs"] = found.points & np.uint16(255)
    blocks["signs"] = found.signs
    blocks["qh"] = _joined(_high(found), 2)
    blocks["scales"] = _joined(found.scales, 4)


def _encode_iq3_xxs(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded_points("IQ3_XXS", values, weights)
    blocks["d"] = found.d
    blocks["qs"] = found.points
    blocks["signs"] = _sign_words(found)


def _encode_iq3_s(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded_points("IQ3_S", values, weights)
    blocks["d"] = found.d
    blocks["qs"] = found.points & np.uint16(255)
    blocks["qh"] = _joined(_high(found), 1)
    blocks["signs"] = found.signs
    blocks["scales"] = _joined(found.scales, 4)


def _encode_iq1_s(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded_points("IQ1_S", values, weights)
    blocks["d"] = found.d
    blocks["qs"] = found.points & np.uint16(255)
    high = (found.points >> np.uint16(8)).reshape(-1, 8, 4) << _THREES
    words = np.bitwise_or.reduce(high, axis=2) | found.scales.astype(np.uint16) << np.uint16(12)
    blocks["qh"] = words | found.signs[:, ::4].astype(np.uint16) << np.uint16(15)


def _encode_iq1_m(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded_points("IQ1_M", values, weights)
    blocks["qs"] = found.points & np.uint16(255)
    blocks["qh"] = _joined(_high(found) | found.signs << np.uint8(3), 4)
    scales = found.scales.reshape(-1, 4, 4).astype(np.uint16) << _THREES
    # The F16 is in the four high bits of the words, its lowest four in the first.
    d = found.d.astype("<f2").view("<u2")[:, None] >> np.arange(0, 16, 4, dtype=np.uint16)
    blocks["scales"] = np.bitwise_or.reduce(scales, axis=2) | d << np.uint16(12)


_SCALE, _SCALES = ("d", "<f2"), ("scales", "u1", (8,))
_INDICES = ("qs", "u1", (32,))

IQ2_XXS = Codec(
    "IQ2_XXS", ELEMENTS,
    np.dtype([_SCALE, ("groups", [("qs", "u1", (4,)), ("signs", "<u4")], (8,))]),
    16, _decode_iq2_xxs, _encode_weighed=_encode_iq2_xxs,
)  # fmt: skip
IQ2_XS = Codec(
    "IQ2_XS",
    ELEMENTS,
    np.dtype([_SCALE, ("qs", "<u2", (32,)), _SCALES]),
    17,
    _decode_iq2_xs,
    _encode_weighed=_encode_iq2_xs,
)
IQ2_S = Codec(
    "IQ2_S", ELEMENTS,
    np.dtype([_SCALE, _INDICES, ("signs", "u1", (32,)), ("qh", "u1", (8,)), _SCALES]),
    22, _decode_iq2_s, _encode_weighed=_encode_iq2_s,
)  # fmt: skip
IQ3_XXS = Codec(
    "IQ3_XXS", ELEMENTS,
    np.dtype([_SCALE, ("qs", "u1", (64,)), ("signs", "<u4", (8,))]),
    18, _decode_iq3_xxs, _encode_weighed=_encode_iq3_xxs,
)  # fmt: skip
IQ3_S = Codec(
    "IQ3_S", ELEMENTS,
    np.dtype([
        _SCALE, ("qs", "u1", (64,)), ("qh", "u1", (8,)), ("signs", "u1", (32,)),
        ("scales", "u1", (4,)),
    ]),
    21, _decode_iq3_s, _encode_weighed=_encode_iq3_s,
)  # fmt: skip
IQ1_S = Codec(
    "IQ1_S",
    ELEMENTS,
    np.dtype([_SCALE, _INDICES, ("qh", "<u2", (8,))]),
    19,
    _decode_iq1_s,
    _encode_weighed=_encode_iq1_s,
)
IQ1_M = Codec(
    "IQ1_M", ELEMENTS,
    np.dtype([_INDICES, ("qh", "u1", (16,)), ("scales", "<u2", (4,))]),
    29, _decode_iq1_m, _encode_weighed=_encode_iq1_m,
)  # fmt: skip
