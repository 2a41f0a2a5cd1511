"""Codecs whose 4-bit codes are looked up in a table: IQ4_NL, IQ4_XS, MXFP4, NVFP4.

Codes of values 0-15 of 32 are the low halves of `qs`, those of values 16-31 the high halves.
IQ4_XS has 256 values per block and a 6-bit scale in every 32. MXFP4's scale is a power of two
alone; its table holds doubled values and its scale half of what the exponent says. NVFP4 has 64
values per block, four runs of 16 with the same table and a scale in E4M3 without a sign, halved;
of those around the one that takes the extreme of a run to the last level each is tried.

Sources: ggml-common.h (layouts, kvalues_iq4nl, kvalues_mxfp4), ggml-impl.h
(ggml_e8m0_to_fp32_half, ggml_ue4m3_to_fp32), gguf-py quants.py (the order of operations), OCP
Microscaling Formats 1.0.
"""

from __future__ import annotations

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.codecs import _search
from headrace.weights.codecs.codec import Blocks, Bytes, Codec, Floats, f32_column, nibbles
from headrace.weights.codecs.search import NON_LINEAR, encoded

# E2M1, doubled; code 8 is minus zero there, and plain zero here and in ggml.
E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
_EXPONENTS = np.arange(256, dtype=np.uint32)
# 2 ** (e - 128); the two smallest are subnormal, and 255 is not NaN as in the OCP document.
E8M0_HALVED = np.where(
    _EXPONENTS < 2, np.uint32(0x00200000) << _EXPONENTS % 2, (_EXPONENTS - 1) << np.uint32(23)
).view(np.float32)
# Half of E4M3, whose top bit is not looked at; its NaN without the top bit is zero, with it 240.
_CODES = np.arange(256) & 127
E4M3_HALVED = np.where(
    _CODES < 8, _CODES * 2.0**-10, (8 + _CODES % 8) * 2.0 ** (_CODES // 8 - 11)
).astype(np.float32)
E4M3_HALVED[127] = 0
_PAIRS = np.arange(0, 16, 2, dtype=np.uint16)
_LAST_E4M3 = 126
_LARGEST_NVFP4 = float(12 * E4M3_HALVED[_LAST_E4M3])
# Codes of scales beside that of the extreme: there are eight to a factor of two, so these are half
# of it, where most of a run is clipped, to twice, where two of the levels go unused.
_TRIED = range(-8, 9)
_E2M1_MIDDLES = (E2M1_DOUBLED[:7] + E2M1_DOUBLED[1:8]) * np.float32(0.5)


def _decode_iq4_nl(blocks: Blocks, out: Floats) -> None:
    np.multiply(f32_column(blocks, "d"), NON_LINEAR[nibbles(blocks["qs"])], out=out)


def _decode_iq4_xs(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    packed = blocks["scales_l"]
    low = np.stack([packed & 15, packed >> 4], axis=-1).reshape(n, 8)
    high = ((blocks["scales_h"][:, None] >> _PAIRS) & 3).astype(np.uint8)
    six_bits = low | (high << np.uint8(4))
    scale = f32_column(blocks, "d") * (six_bits.view(np.int8) - np.int8(32))
    codes = nibbles(blocks["qs"].reshape(n, 8, 16))
    np.multiply(scale[..., None], NON_LINEAR[codes], out=out.reshape(n, 8, 32))


def _decode_mxfp4(blocks: Blocks, out: Floats) -> None:
    np.multiply(E8M0_HALVED[blocks["e"]][:, None], E2M1_DOUBLED[nibbles(blocks["qs"])], out=out)


def _decode_nvfp4(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    values = E2M1_DOUBLED[nibbles(blocks["qs"].reshape(n, 4, 8))]
    np.multiply(E4M3_HALVED[blocks["d"]][..., None], values, out=out.reshape(n, 4, 16))


def _encode_mxfp4(values: Floats, blocks: Blocks) -> None:
    """Exponent floor(log2 max|x|) - 2, then the nearest table entry, the first of equals.

    Exponents below the least are the least (magnitudes under 2**-125, where gguf-py's cast is
    undefined).
    """
    peak = np.abs(values).max(axis=1)
    if not np.isfinite(peak).all():
        worst = peak[~np.isfinite(peak)][0]
        raise CheckpointError(
            f"a block whose largest magnitude is {worst:g} cannot be MXFP4: values must be finite; "
            "use BF16 or F32"
        )
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(peak)) - np.float32(2) + np.float32(127)
    code = np.where(peak > 0, np.maximum(exponent, 0), 0).astype(np.uint8)
    scale = E8M0_HALVED[code][:, None]
    best = np.zeros(values.shape, np.uint8)
    least = np.abs(values)
    for index in range(1, 16):
        # Values near the largest float minus an entry of the other sign: infinitely far is right.
        with np.errstate(over="ignore"):
            error = np.abs(scale * E2M1_DOUBLED[index] - values)
        closer = error < least
        best[closer] = index
        least = np.minimum(error, least)
    blocks["e"] = code
    blocks["qs"] = best[:, :16] | (best[:, 16:] << np.uint8(4))


def _encode_nvfp4(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    """The scale of the least weighed squared error of those tried, the nearest code first."""
    peak = np.abs(values).max(axis=1)
    if not (peak <= _LARGEST_NVFP4).all():
        worst = peak[~(peak <= _LARGEST_NVFP4)][0]
        raise CheckpointError(
            f"a block whose largest magnitude is {worst:g} cannot be NVFP4: values must be finite "
            f"and at most {_LARGEST_NVFP4:g}; use BF16 or F32"
        )
    x = np.ascontiguousarray(values.reshape(-1, 16))
    w = None if weights is None else np.ascontiguousarray(weights.reshape(-1, 16), np.float32)
    scales, codes = np.empty(len(x), np.uint8), np.empty(x.shape, np.uint8)
    _search.nvfp4(x, w, E4M3_HALVED[: _LAST_E4M3 + 1], scales, codes)
    blocks["d"] = scales.reshape(-1, 4)
    runs = codes.reshape(-1, 4, 16)
    blocks["qs"] = (runs[..., :8] | (runs[..., 8:] << np.uint8(4))).reshape(-1, 32)


def find_nvfp4(x: Floats, weights: Floats | None) -> tuple[Bytes, Bytes]:
    """uint8[n] and [n, 16]: codes of scales and values of runs float32[n, 16], weighed by the same
    shape or equally. It defines what the native one finds.
    """
    w = np.ones_like(x) if weights is None else weights
    w = np.where((w > 0).any(axis=1, keepdims=True), w, np.float32(1))
    wanted = np.abs(x).max(axis=1) / E2M1_DOUBLED[7]
    middles = (E4M3_HALVED[:_LAST_E4M3] + E4M3_HALVED[1 : _LAST_E4M3 + 1]) * np.float32(0.5)
    nearest = np.searchsorted(middles, wanted)
    least = np.full(len(x), np.inf)
    scales = np.zeros(len(x), np.uint8)
    codes = np.zeros(x.shape, np.uint8)
    for step in sorted(_TRIED, key=abs):
        scale = np.clip(nearest + step, 0, _LAST_E4M3).astype(np.uint8)
        unit = E4M3_HALVED[scale][:, None]
        ratios = np.abs(x) / np.where(unit > 0, unit, np.float32(1))
        code = np.searchsorted(_E2M1_MIDDLES, ratios, side="left").astype(np.uint8)
        # Zero has no sign here.
        code |= ((x < 0) & (code > 0)).astype(np.uint8) << np.uint8(3)
        off = (unit * E2M1_DOUBLED[code] - x).astype(np.float64)
        error = np.cumsum(w * off * off, axis=1)[:, -1]
        better = error < least
        least = np.where(better, error, least)
        scales = np.where(better, scale, scales)
        codes = np.where(better[:, None], code, codes)
    return scales, codes


def _encode_iq4_nl(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded("IQ4_NL", values, weights)
    blocks["qs"] = found.quants[:, :16] | (found.quants[:, 16:] << np.uint8(4))
    blocks["d"] = found.d


def _encode_iq4_xs(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
    found = encoded("IQ4_XS", values, weights)
    six_bits = (found.scales + np.int8(32)).view(np.uint8)
    low = six_bits & np.uint8(15)
    blocks["scales_l"] = low[:, ::2] | (low[:, 1::2] << np.uint8(4))
    high = (six_bits >> np.uint8(4)).astype(np.uint16) << _PAIRS
    blocks["scales_h"] = np.bitwise_or.reduce(high, axis=1)
    codes = found.quants.reshape(-1, 8, 32)
    blocks["qs"] = (codes[..., :16] | (codes[..., 16:] << np.uint8(4))).reshape(-1, 128)
    blocks["d"] = found.d


IQ4_NL = Codec(
    "IQ4_NL", 32, np.dtype([("d", "<f2"), ("qs", "u1", (16,))]),
    20, _decode_iq4_nl, _encode_weighed=_encode_iq4_nl,
)  # fmt: skip
IQ4_XS = Codec(
    "IQ4_XS", 256,
    np.dtype([("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", (4,)), ("qs", "u1", (128,))]),
    23, _decode_iq4_xs, _encode_weighed=_encode_iq4_xs,
)  # fmt: skip
MXFP4 = Codec(
    "MXFP4", 32, np.dtype([("e", "u1"), ("qs", "u1", (16,))]), 39, _decode_mxfp4, _encode_mxfp4
)
NVFP4 = Codec(
    "NVFP4", 64, np.dtype([("d", "u1", (4,)), ("qs", "u1", (32,))]),
    40, _decode_nvfp4, _encode_weighed=_encode_nvfp4,
)  # fmt: skip
