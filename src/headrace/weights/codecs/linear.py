"""Codecs of 32 values on a straight line: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

Kinds ending in 0 hold d * q with q around zero, kinds ending in 1 hold d * q + m with q from zero.
The 4 low bits of values 0-15 are the low halves of `qs`, those of values 16-31 the high halves; the
fifth bit of value j is bit j of `qh`. With importance, scales are searched for (not Q8_0's).

Sources: ggml-common.h (layouts), ggml-quants.c (quantize_row_*_ref), gguf-py quants.py (the order
of operations).
"""

from __future__ import annotations

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.codecs.codec import Blocks, Bytes, Codec, Floats, f32_column, nibbles
from headrace.weights.codecs.search import encoded

ELEMENTS = 32
_F16_MAX = 65504


def _five_bits(blocks: Blocks) -> Bytes:
    high = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    return nibbles(blocks["qs"]) | (high << np.uint8(4))


def _decode_q4_0(blocks: Blocks, out: Floats) -> None:
    np.multiply(f32_column(blocks, "d"), nibbles(blocks["qs"]).view(np.int8) - np.int8(8), out=out)


def _decode_q4_1(blocks: Blocks, out: Floats) -> None:
    np.multiply(f32_column(blocks, "d"), nibbles(blocks["qs"]), out=out)
    np.add(out, f32_column(blocks, "m"), out=out)


def _decode_q5_0(blocks: Blocks, out: Floats) -> None:
    np.multiply(f32_column(blocks, "d"), _five_bits(blocks).view(np.int8) - np.int8(16), out=out)


def _decode_q5_1(blocks: Blocks, out: Floats) -> None:
    np.multiply(f32_column(blocks, "d"), _five_bits(blocks), out=out)
    np.add(out, f32_column(blocks, "m"), out=out)


def _decode_q8_0(blocks: Blocks, out: Floats) -> None:
    np.multiply(blocks["qs"], f32_column(blocks, "d"), out=out)


def store_half(values: Floats, blocks: Blocks, name: str, kind: str, source: Floats) -> None:
    """values[n, 1] into the F16 field `name`; CheckpointError naming `source` and `kind` where one
    is not finite there."""
    with np.errstate(over="ignore"):
        halves = values[:, 0].astype("<f2")
    bad = ~np.isfinite(halves)
    if bad.any():
        worst = np.abs(source[bad][0]).max()
        raise CheckpointError(
            f"a block whose largest magnitude is {worst:g} cannot be {kind}: values must be finite "
            f"and its scale and minimum at most {_F16_MAX}; use BF16 or F32"
        )
    blocks[name] = halves


def inverse(scale: Floats) -> Floats:
    """1 / scale, and 0 where that is infinite: such blocks are stored as their zero.

    gguf-py has undefined casts there (magnitudes below about 1e-37); the stored scale is 0.
    """
    with np.errstate(divide="ignore", over="ignore"):
        quotient = np.float32(1) / scale
    quotient[~np.isfinite(quotient)] = 0
    return quotient


def round_half_away(values: Floats) -> Floats:
    """The nearest whole numbers, halves away from 0."""
    magnitude = np.abs(values)
    whole = np.floor(magnitude)
    whole += (magnitude - whole) >= np.float32(0.5)
    return np.copysign(whole, values)


def _store_bits(quants: Bytes, blocks: Blocks) -> None:
    half = ELEMENTS // 2
    low = quants & np.uint8(15)
    blocks["qs"] = low[:, :half] | (low[:, half:] << np.uint8(4))
    if "qh" in (blocks.dtype.names or ()):
        blocks["qh"] = np.packbits(quants >> np.uint8(4), axis=1, bitorder="little")


def _encode_around_zero(values: Floats, blocks: Blocks, kind: str, half_range: int) -> None:
    """Scale so that the value of largest magnitude (the first of equals) becomes -half_range."""
    at = np.abs(values).argmax(axis=1)[:, None]
    scale = np.take_along_axis(values, at, axis=1) / np.float32(-half_range)
    store_half(scale, blocks, "d", kind, values)
    quants = np.trunc(values * inverse(scale) + np.float32(half_range + 0.5)).astype(np.uint8)
    _store_bits(np.minimum(quants, np.uint8(2 * half_range - 1)), blocks)


def _encode_from_minimum(values: Floats, blocks: Blocks, kind: str, levels: int) -> None:
    """The least value becomes 0, the greatest `levels`."""
    low = values.min(axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):
        scale = (values.max(axis=1, keepdims=True) - low) / np.float32(levels)
    store_half(scale, blocks, "d", kind, values)
    store_half(low, blocks, "m", kind, values)
    quants = np.trunc((values - low) * inverse(scale) + np.float32(0.5)).astype(np.uint8)
    _store_bits(np.minimum(quants, np.uint8(levels)), blocks)


def _encode_q4_0(values: Floats, blocks: Blocks) -> None:
    _encode_around_zero(values, blocks, "Q4_0", 8)


def _encode_q5_0(values: Floats, blocks: Blocks) -> None:
    _encode_around_zero(values, blocks, "Q5_0", 16)


def _encode_q4_0_weighed(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    _store_searched("Q4_0", values, blocks, weights)


def _encode_q5_0_weighed(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    _store_searched("Q5_0", values, blocks, weights)


def _encode_q4_1_weighed(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    _store_searched("Q4_1", values, blocks, weights)


def _encode_q5_1_weighed(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    _store_searched("Q5_1", values, blocks, weights)


def _store_searched(kind: str, values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded(kind, values, weights)
    blocks["d"] = found.d
    if len(found.dmin):
        blocks["m"] = -found.dmin
    _store_bits(found.quants, blocks)


def _encode_q4_1(values: Floats, blocks: Blocks) -> None:
    _encode_from_minimum(values, blocks, "Q4_1", 15)


def _encode_q5_1(values: Floats, blocks: Blocks) -> None:
    _encode_from_minimum(values, blocks, "Q5_1", 31)


def _encode_q8_0(values: Floats, blocks: Blocks) -> None:
    """Scale d = max|x| / 127, quants round(x * (1 / d)), halves away from 0.

    The quants use the float32 d, not the F16 one it is stored as (quantize_row_q8_0_ref).
    """
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    store_half(scale, blocks, "d", "Q8_0", values)
    blocks["qs"] = round_half_away(values * inverse(scale)).astype(np.int8)


_HALF, _NIBBLES, _FIFTH = ("d", "<f2"), ("qs", "u1", (16,)), ("qh", "u1", (4,))
_MINIMUM = ("m", "<f2")

Q4_0 = Codec(
    "Q4_0", ELEMENTS, np.dtype([_HALF, _NIBBLES]),
    2, _decode_q4_0, _encode_q4_0, _encode_q4_0_weighed,
)  # fmt: skip
Q4_1 = Codec(
    "Q4_1", ELEMENTS, np.dtype([_HALF, _MINIMUM, _NIBBLES]),
    3, _decode_q4_1, _encode_q4_1, _encode_q4_1_weighed,
)  # fmt: skip
Q5_0 = Codec(
    "Q5_0", ELEMENTS, np.dtype([_HALF, _FIFTH, _NIBBLES]),
    6, _decode_q5_0, _encode_q5_0, _encode_q5_0_weighed,
)  # fmt: skip
Q5_1 = Codec(
    "Q5_1", ELEMENTS, np.dtype([_HALF, _MINIMUM, _FIFTH, _NIBBLES]),
    7, _decode_q5_1, _encode_q5_1, _encode_q5_1_weighed,
)  # fmt: skip
Q8_0 = Codec(
    "Q8_0", ELEMENTS, np.dtype([_HALF, ("qs", "i1", (32,))]), 8, _decode_q8_0, _encode_q8_0
)
