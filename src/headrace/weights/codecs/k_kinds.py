"""Codecs of 256 values with scales of their own in every 16 or 32: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.

A block has one F16 scale d (Q2_K, Q4_K, Q5_K also dmin), and each sub-block a small integer scale
(and minimum): y = (d * scale) * q - (dmin * minimum), in this order. Which scales to take is a
search (`search.py`); here lies where the bits go.

Sources: ggml-common.h (layouts), gguf-py quants.py (bit order, the order of operations).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Bytes, Codec, Floats, f32_column, nibbles
from headrace.weights.codecs.search import encoded

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


def _halves(quants: Bytes) -> Bytes:
    """uint8[..., k] of uint8[..., 2k]: the inverse of `nibbles`."""
    width = quants.shape[-1] // 2
    return quants[..., :width] | (quants[..., width:] << np.uint8(4))


def _quarters(quants: Bytes) -> Bytes:
    """uint8[n, parts * 32] of two-bit uint8[n, parts, 4, 32]: the inverse of `_two_bits`."""
    shifted = quants << _PAIRS
    joined = shifted[:, :, 0] | shifted[:, :, 1] | shifted[:, :, 2] | shifted[:, :, 3]
    out: Bytes = joined.reshape(len(quants), -1)
    return out


def _eighths(bits: Bytes) -> Bytes:
    """uint8[n, 32] of bits uint8[n, 8, 32]: the inverse of `_one_bit`."""
    out: Bytes = np.bitwise_or.reduce(bits << _BITS, axis=1)
    return out


def _encode_q2_k(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded("Q2_K", values, weights)
    blocks["scales"] = found.scales.view(np.uint8) | (found.minimums.view(np.uint8) << np.uint8(4))
    blocks["qs"] = _quarters(found.quants.reshape(-1, 2, 4, 32))
    blocks["d"], blocks["dmin"] = found.d, found.dmin


def _encode_q3_k(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded("Q3_K", values, weights)
    six_bits = (found.scales + np.int8(32)).view(np.uint8)
    high = (six_bits >> np.uint8(4)).reshape(-1, 4, 4) << _PAIRS
    blocks["scales"][:, :8] = _halves(six_bits & np.uint8(15))
    blocks["scales"][:, 8:] = np.bitwise_or.reduce(high, axis=1)
    blocks["qs"] = _quarters((found.quants & np.uint8(3)).reshape(-1, 2, 4, 32))
    blocks["hmask"] = _eighths((found.quants >> np.uint8(2)).reshape(-1, 8, 32))
    blocks["d"] = found.d


def _encode_affine(kind: str, values: Floats, blocks: Blocks, weights: Floats | None) -> Bytes:
    """Store all of a block but fifth bits, which are returned as uint8[n, 8, 32]."""
    found = encoded(kind, values, weights)
    scales, minimums = found.scales.view(np.uint8), found.minimums.view(np.uint8)
    four, packed = np.uint8(4), blocks["scales"]
    packed[:, :4] = scales[:, :4] | ((scales[:, 4:] >> four) << np.uint8(6))
    packed[:, 4:8] = minimums[:, :4] | ((minimums[:, 4:] >> four) << np.uint8(6))
    packed[:, 8:] = (scales[:, 4:] & np.uint8(15)) | (minimums[:, 4:] << four)
    quants = found.quants.reshape(-1, 8, 32)
    low = (quants & np.uint8(15)).reshape(-1, 4, 64)
    blocks["qs"] = _halves(low).reshape(-1, 128)
    blocks["d"], blocks["dmin"] = found.d, found.dmin
    return quants >> four


def _encode_q4_k(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    _encode_affine("Q4_K", values, blocks, weights)


def _encode_q5_k(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    blocks["qh"] = _eighths(_encode_affine("Q5_K", values, blocks, weights))


def _encode_q6_k(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded("Q6_K", values, weights)
    low = (found.quants & np.uint8(15)).reshape(-1, 2, 128)
    blocks["ql"] = _halves(low).reshape(-1, 128)
    blocks["qh"] = _quarters((found.quants >> np.uint8(4)).reshape(-1, 2, 4, 32))
    blocks["scales"] = found.scales
    blocks["d"] = found.d


_SCALE, _MINIMUM = ("d", "<f2"), ("dmin", "<f2")
_SIX_BITS = ("scales", "u1", (12,))

Q2_K = Codec(
    "Q2_K", ELEMENTS,
    np.dtype([("scales", "u1", (16,)), ("qs", "u1", (64,)), _SCALE, _MINIMUM]),
    10, _decode_q2_k, _encode_weighed=_encode_q2_k,
)  # fmt: skip
Q3_K = Codec(
    "Q3_K", ELEMENTS,
    np.dtype([("hmask", "u1", (32,)), ("qs", "u1", (64,)), _SIX_BITS, _SCALE]),
    11, _decode_q3_k, _encode_weighed=_encode_q3_k,
)  # fmt: skip
Q4_K = Codec(
    "Q4_K", ELEMENTS,
    np.dtype([_SCALE, _MINIMUM, _SIX_BITS, ("qs", "u1", (128,))]),
    12, _decode_q4_k, _encode_weighed=_encode_q4_k,
)  # fmt: skip
Q5_K = Codec(
    "Q5_K", ELEMENTS,
    np.dtype([_SCALE, _MINIMUM, _SIX_BITS, ("qh", "u1", (32,)), ("qs", "u1", (128,))]),
    13, _decode_q5_k, _encode_weighed=_encode_q5_k,
)  # fmt: skip
Q6_K = Codec(
    "Q6_K", ELEMENTS,
    np.dtype([("ql", "u1", (128,)), ("qh", "u1", (64,)), ("scales", "i1", (16,)), _SCALE]),
    14, _decode_q6_k, _encode_weighed=_encode_q6_k,
)  # fmt: skip
