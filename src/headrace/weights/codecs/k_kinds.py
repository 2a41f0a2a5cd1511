"""Codecs of 256 values with scales of their own in every 16 or 32: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.

A block has one F16 scale d (Q2_K, Q4_K, Q5_K also dmin), and each sub-block a small integer scale
(and minimum): y = (d * scale) * q - (dmin * minimum), in this order. They are decoded only, because
choosing their scales is a search and not a formula.

Sources: ggml-common.h (layouts), gguf-py quants.py (bit order, the order of operations).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Bytes, Codec, Floats, f32_column, nibbles

ELEMENTS = 256
_PAIRS = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
_BITS = np.arange(8, dtype=np.uint8)[:, None]


def _two_bits(packed: Bytes) -> Bytes:
    """uint8[n, parts, 4, 32] of uint8[n, parts * 32]: bits 0-1 of 32 bytes, then bits 2-3, ..."""
    groups = packed.reshape(len(packed), -1, 1, 32)
    return (groups >> _PAIRS) & np.uint8(3)


def _one_bit(packed: Bytes) -> Bytes:
    """uint8[n, 8, 32] of uint8[n, 32]: bit 0 of every byte, then bit 1, ..."""
    return (packed[:, None, :] >> _BITS) & np.uint8(1)


def _scales_and_minimums(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight 6-bit scales and eight 6-bit minimums of 12 bytes.

    Bytes 0-3 and 4-7 hold scales and minimums 0-3, and in their two high bits the high bits of
    scales and minimums 4-7, whose low halves are the nibbles of bytes 8-11.
    """
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (rest & 15) | ((first >> 2) & 48)], axis=1)
    minimums = np.concatenate([second & 63, (rest >> 4) | ((second >> 2) & 48)], axis=1)
    return scales, minimums


def _decode_q2_k(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    packed = blocks["scales"]
    scale = f32_column(blocks, "d") * (packed & 15)
    minimum = f32_column(blocks, "dmin") * (packed >> 4)
    values = out.reshape(n, 16, 16)
    np.multiply(scale[..., None], _two_bits(blocks["qs"]).reshape(n, 16, 16), out=values)
    np.subtract(values, minimum[..., None], out=values)


def _decode_q3_k(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    packed = blocks["scales"]
    # Scale j: its 4 low bits are nibbles of bytes 0-7, its 2 high bits lie in bytes 8-11.
    high = (packed[:, None, 8:] >> _PAIRS) & np.uint8(3)
    six_bits = nibbles(packed[:, :8]) | (high.reshape(n, 16) << np.uint8(4))
    scale = f32_column(blocks, "d") * (six_bits.view(np.int8) - np.int8(32))
    # A high bit that is set means "subtract nothing", so q is the 3-bit number minus 4.
    three_bits = _two_bits(blocks["qs"]).reshape(n, 8, 32) | (_one_bit(blocks["hmask"]) << 2)
    quants = three_bits.view(np.int8) - np.int8(4)
    np.multiply(scale[..., None], quants.reshape(n, 16, 16), out=out.reshape(n, 16, 16))


def _affine(blocks: Blocks, quants: Bytes, out: Floats) -> None:
    scales, minimums = _scales_and_minimums(blocks["scales"])
    scale = f32_column(blocks, "d") * scales
    minimum = f32_column(blocks, "dmin") * minimums
    values = out.reshape(len(blocks), 8, 32)
    np.multiply(scale[..., None], quants, out=values)
    np.subtract(values, minimum[..., None], out=values)


def _decode_q4_k(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    _affine(blocks, nibbles(blocks["qs"].reshape(n, 4, 32)).reshape(n, 8, 32), out)


def _decode_q5_k(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    low = nibbles(blocks["qs"].reshape(n, 4, 32)).reshape(n, 8, 32)
    _affine(blocks, low | (_one_bit(blocks["qh"]) << np.uint8(4)), out)


def _decode_q6_k(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    scale = f32_column(blocks, "d") * blocks["scales"]
    low = nibbles(blocks["ql"].reshape(n, 2, 64)).reshape(n, 8, 32)
    high = _two_bits(blocks["qh"]).reshape(n, 8, 32)
    quants = (low | (high << np.uint8(4))).view(np.int8) - np.int8(32)
    np.multiply(scale[..., None], quants.reshape(n, 16, 16), out=out.reshape(n, 16, 16))


_SCALE, _MINIMUM = ("d", "<f2"), ("dmin", "<f2")
_SIX_BITS = ("scales", "u1", (12,))

Q2_K = Codec(
    "Q2_K", ELEMENTS,
    np.dtype([("scales", "u1", (16,)), ("qs", "u1", (64,)), _SCALE, _MINIMUM]),
    10, _decode_q2_k,
)  # fmt: skip
Q3_K = Codec(
    "Q3_K", ELEMENTS,
    np.dtype([("hmask", "u1", (32,)), ("qs", "u1", (64,)), _SIX_BITS, _SCALE]),
    11, _decode_q3_k,
)  # fmt: skip
Q4_K = Codec(
    "Q4_K", ELEMENTS,
    np.dtype([_SCALE, _MINIMUM, _SIX_BITS, ("qs", "u1", (128,))]),
    12, _decode_q4_k,
)  # fmt: skip
Q5_K = Codec(
    "Q5_K", ELEMENTS,
    np.dtype([_SCALE, _MINIMUM, _SIX_BITS, ("qh", "u1", (32,)), ("qs", "u1", (128,))]),
    13, _decode_q5_k,
)  # fmt: skip
Q6_K = Codec(
    "Q6_K", ELEMENTS,
    np.dtype([("ql", "u1", (128,)), ("qh", "u1", (64,)), ("scales", "i1", (16,)), _SCALE]),
    14, _decode_q6_k,
)  # fmt: skip
