"""Codecs of one or two bits, or of three levels, on a straight line: Q1_0, Q2_0, TQ1_0, TQ2_0.

A block has one F16 scale d. Q1_0 holds d or -d by a bit of each of 128 values, Q2_0 d * (q - 1) by
two bits of each of 64 in the order of values, TQ2_0 the same of 256 in the order of the K kinds
(bits 0-1 of 32 bytes, then bits 2-3, ...). TQ1_0 holds -d, 0 or d: five digits of base 3 a byte,
the highest first, as the fraction byte / 256, of which each multiplication by 3 gives a digit. Its
bytes 0-31 hold values 0-159, a digit of each of 32 at a time, bytes 32-47 in the same way 160-239,
and the last four, of four digits each, the rest.

Q1_0 and Q2_0 are encoded with the least squared error that their levels allow, weighed by
importance where it is given: with the signs of the values the best d of Q1_0 is their mean
magnitude, and of Q2_0 every d at which a code changes is tried.

Sources: ggml-common.h (layouts), ggml-quants.c (dequantize_row_q1_0, dequantize_row_q2_0), gguf-py
quants.py (TQ1_0, TQ2_0).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.weights.codecs import _search
from headrace.weights.codecs.codec import Blocks, Bytes, Codec, Floats, f32_column
from headrace.weights.codecs.linear import inverse, round_half_away, store_half
from headrace.weights.codecs.search import refuse

Doubles = npt.NDArray[np.float64]

# Beyond it no scale is within F16, and squares of float64 are far from their end.
_LARGEST = 1e9

_PAIRS = np.arange(0, 8, 2, dtype=np.uint8)
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def _decode_q1_0(blocks: Blocks, out: Floats) -> None:
    bits = np.unpackbits(blocks["qs"], axis=1, bitorder="little")
    np.multiply(f32_column(blocks, "d"), 2 * bits.view(np.int8) - np.int8(1), out=out)


def _decode_q2_0(blocks: Blocks, out: Floats) -> None:
    codes = (blocks["qs"][..., None] >> _PAIRS).reshape(len(blocks), 64) & np.uint8(3)
    np.multiply(f32_column(blocks, "d"), codes.view(np.int8) - np.int8(1), out=out)


def _decode_tq2_0(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    codes = (blocks["qs"].reshape(n, 2, 1, 32) >> _PAIRS[:, None]).reshape(n, 256) & np.uint8(3)
    np.multiply(f32_column(blocks, "d"), codes.view(np.int8) - np.int8(1), out=out)


def _digits(packed: Bytes, count: int) -> Bytes:
    """uint8[n, count * bytes] of uint8[n, bytes]: the first digit of each byte, then the second."""
    fractions = packed[:, None, :] * _POWERS[:count]
    digits = (fractions.astype(np.uint16) * np.uint16(3)) >> np.uint16(8)
    return digits.astype(np.uint8).reshape(len(packed), -1)


def _decode_tq1_0(blocks: Blocks, out: Floats) -> None:
    packed = blocks["qs"]
    digits = np.concatenate(
        [_digits(packed[:, :32], 5), _digits(packed[:, 32:], 5), _digits(blocks["qh"], 4)], axis=1
    )
    np.multiply(f32_column(blocks, "d"), digits.view(np.int8) - np.int8(1), out=out)


def _store_levels(values: Floats, blocks: Blocks, kind: str) -> Bytes:
    """Scale d = max|x|, and the codes 0, 1, 2 of round(x * (1 / d)), halves away from 0."""
    scale = np.abs(values).max(axis=1, keepdims=True)
    store_half(scale, blocks, "d", kind, values)
    return round_half_away(values * inverse(scale)).astype(np.int8).view(np.uint8) + np.uint8(1)


def _encode_tq2_0(values: Floats, blocks: Blocks) -> None:
    codes = _store_levels(values, blocks, "TQ2_0").reshape(len(values), 2, 4, 32)
    packed = np.bitwise_or.reduce(codes << _PAIRS[:, None], axis=2)
    blocks["qs"] = packed.reshape(len(values), 64)


def _packed_digits(codes: Bytes, length: int) -> Bytes:
    """uint8[n, bytes] of codes uint8[n, digits * bytes]: the least byte whose digits these are."""
    digits = codes.reshape(len(codes), -1, length)
    number = (digits * _POWERS[::-1][: digits.shape[1]]).sum(axis=1, dtype=np.uint16)
    packed: Bytes = ((number * np.uint16(256) + np.uint16(242)) // np.uint16(243)).astype(np.uint8)
    return packed


def _encode_tq1_0(values: Floats, blocks: Blocks) -> None:
    codes = _store_levels(values, blocks, "TQ1_0")
    blocks["qs"][:, :32] = _packed_digits(codes[:, :160], 32)
    blocks["qs"][:, 32:] = _packed_digits(codes[:, 160:240], 16)
    blocks["qh"] = _packed_digits(codes[:, 240:], 4)


def _check(values: Floats, kind: str) -> None:
    """Raise CheckpointError where `kind` cannot hold one of them."""
    peak = np.abs(values).max(axis=1)
    if not (peak <= _LARGEST).all():
        refuse(kind, peak[~(peak <= _LARGEST)][0])


def _weighed(values: Floats, weights: Floats | None) -> tuple[Doubles, Doubles]:
    """Values and the weights of their squared errors; equal ones where all of a block are 0."""
    if weights is None:
        return values.astype(np.float64), np.ones(values.shape)
    some = (weights > 0).any(axis=1, keepdims=True)
    return values.astype(np.float64), np.where(some, weights, 1).astype(np.float64)


def _summed(values: Doubles) -> Doubles:
    """float64[n, 1]: sums along rows in order, which `sum` is not on every machine."""
    sums: Doubles = np.cumsum(values, axis=1)[:, -1:]
    return sums


def _encode_q1_0(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    _check(values, "Q1_0")
    x, w = _weighed(values, weights)
    store_half(
        (_summed(w * np.abs(x)) / _summed(w)).astype(np.float32), blocks, "d", "Q1_0", values
    )
    blocks["qs"] = np.packbits(values >= 0, axis=1, bitorder="little")


def _best_q2_0(x: Doubles, w: Doubles) -> tuple[Doubles, Doubles]:
    """float64[n, 1] each: the d > 0 of the least weighed error over levels -1 to 2, and what it
    explains of the sum of w * x^2.

    From large d to small, codes change one at a time: of x > 0 to 1 at 2x and to 2 at 2x / 3, of
    x < 0 to -1 at -2x. Behind each change the best d is sum(w x q) / sum(w q^2), and explains
    sum(w x q)^2 / sum(w q^2).
    """
    wx = w * x
    first = np.where(x > 0, 2 * x, -2 * x)
    second = np.where(x > 0, 2 * x / 3, 0)
    at = np.concatenate([first, second], axis=1)
    order = np.argsort(-at, axis=1, kind="stable")
    # q goes from 0 to 1 or -1, and then from 1 to 2: q^2 grows by 1, then by 3.
    rises = np.concatenate([np.abs(wx), np.where(x > 0, wx, 0)], axis=1)
    squares = np.concatenate([w, np.where(x > 0, 3 * w, 0)], axis=1)
    products = np.cumsum(np.take_along_axis(rises, order, axis=1), axis=1)
    norms = np.cumsum(np.take_along_axis(squares, order, axis=1), axis=1)
    some = norms > 0
    explained = np.where(some, products**2 / np.where(some, norms, 1), 0)
    best = explained.argmax(axis=1)[:, None]
    product, norm = (np.take_along_axis(sums, best, axis=1) for sums in (products, norms))
    scale = np.where(norm > 0, product / np.where(norm > 0, norm, 1), 0)
    return scale, np.take_along_axis(explained, best, axis=1)


def find_q2_0(values: Floats, weights: Floats | None) -> Floats:
    """float32[n]: the best d of blocks float32[n, 64], weighed by the same shape or equally. It
    defines what the native one finds.
    """
    x, w = _weighed(values, weights)
    (up, of_up), (down, of_down) = _best_q2_0(x, w), _best_q2_0(-x, w)
    # A negative d turns the level without a partner to the other side.
    scale: Floats = np.where(of_up >= of_down, up, -down).astype(np.float32)[:, 0]
    return scale


def _encode_q2_0(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    _check(values, "Q2_0")
    scale = np.empty(len(values), np.float32)
    w = None if weights is None else np.ascontiguousarray(weights, np.float32)
    _search.q2_0(np.ascontiguousarray(values), w, scale)
    store_half(scale[:, None], blocks, "d", "Q2_0", values)
    levels = np.clip(np.rint(values * inverse(f32_column(blocks, "d"))), -1, 2)
    codes = (levels.astype(np.int8) + np.int8(1)).view(np.uint8).reshape(len(values), 16, 4)
    blocks["qs"] = np.bitwise_or.reduce(codes << _PAIRS, axis=2)


_SCALE = ("d", "<f2")

Q1_0 = Codec(
    "Q1_0", 128, np.dtype([_SCALE, ("qs", "u1", (16,))]),
    41, _decode_q1_0, _encode_weighed=_encode_q1_0,
)  # fmt: skip
Q2_0 = Codec(
    "Q2_0", 64, np.dtype([_SCALE, ("qs", "u1", (16,))]),
    42, _decode_q2_0, _encode_weighed=_encode_q2_0,
)  # fmt: skip
TQ1_0 = Codec(
    "TQ1_0", 256, np.dtype([("qs", "u1", (48,)), ("qh", "u1", (4,)), _SCALE]),
    34, _decode_tq1_0, _encode_tq1_0,
)  # fmt: skip
TQ2_0 = Codec(
    "TQ2_0", 256, np.dtype([("qs", "u1", (64,)), _SCALE]), 35, _decode_tq2_0, _encode_tq2_0
)
