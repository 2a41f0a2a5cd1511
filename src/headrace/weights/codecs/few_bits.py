"""Codecs of one or two bits, or of three levels, on a straight line: Q1_0, Q2_0, TQ1_0, TQ2_0.

A block has one F16 scale d. Q1_0 holds d or -d by a bit of each of 128 values, Q2_0 d * (q - 1) by
two bits of each of 64 in the order of values, TQ2_0 the same of 256 in the order of the K kinds
(bits 0-1 of 32 bytes, then bits 2-3, ...). TQ1_0 holds -d, 0 or d: five digits of base 3 a byte,
the highest first, as the fraction byte / 256, of which each multiplication by 3 gives a digit. Its
bytes 0-31 hold values 0-159, a digit of each of 32 at a time, bytes 32-47 in the same way 160-239,
and the last four, of four digits each, the rest.

Sources: ggml-common.h (layouts), ggml-quants.c (dequantize_row_q1_0, dequantize_row_q2_0), gguf-py
quants.py (TQ1_0, TQ2_0).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Bytes, Codec, Floats, f32_column
from headrace.weights.codecs.linear import inverse, round_half_away, store_half

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


_SCALE = ("d", "<f2")

Q1_0 = Codec("Q1_0", 128, np.dtype([_SCALE, ("qs", "u1", (16,))]), 41, _decode_q1_0)
Q2_0 = Codec("Q2_0", 64, np.dtype([_SCALE, ("qs", "u1", (16,))]), 42, _decode_q2_0)
TQ1_0 = Codec(
    "TQ1_0", 256, np.dtype([("qs", "u1", (48,)), ("qh", "u1", (4,)), _SCALE]),
    34, _decode_tq1_0, _encode_tq1_0,
)  # fmt: skip
TQ2_0 = Codec(
    "TQ2_0", 256, np.dtype([("qs", "u1", (64,)), _SCALE]), 35, _decode_tq2_0, _encode_tq2_0
)
