"""How K and V of a token are stored, and what is read of them.

A head of a token is stored from its own row alone. Codes and scales equal those of the cpu backend
(native/kv_floats.h, native/kv_scaled.h): every step is a float32 operation, in the order of
docs/kernels.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from headrace.ops.kv import KV_CODECS, KVCodec
from headrace.ops.reference.arithmetic import F32

Codes = npt.NDArray[np.generic]

LEAST_NORMAL = np.float32(2.0**-126)
"""Scales below are zero: denormals are flushed."""

_MOST_E4M3 = np.float32(448)

FACTORS = tuple(
    np.float32(factor) for step in range(8) for factor in ((8 + step / 2) / 8, (7 + step / 2) / -8)
)
"""Tried for four bits: the largest value becomes -8 or 7, or is cut to it from up to 3.5 beyond."""

_DTYPES: dict[KVCodec, npt.DTypeLike] = {
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "fp8": ml_dtypes.float8_e4m3fn,
    "int8": np.int8,
    "q8_0": np.int8,
    "q4_0": np.int8,
}


class StoredHeads(NamedTuple):
    """Heads as they are stored; scales is None where the codec has none."""

    codes: Codes
    """[..., width] in the type of the codec; four bits as int8"""
    scales: F32 | None
    """f32[...]"""


@dataclass(frozen=True)
class StoredRows:
    """K or V of one layer: a slot for each token of each block."""

    codec: KVCodec
    codes: Codes
    """[blocks, block_size, kv_heads, width] in the type of the codec"""
    scales: F32 | None
    """f32[blocks, block_size, kv_heads], None where the codec has none"""
    rotated: bool
    of_layer: np.float32
    """What fp8 stores is multiplied by."""

    @classmethod
    def zeros(
        cls,
        codec: KVCodec,
        slots: tuple[int, int, int],
        width: int,
        turned: bool,
        of_layer: float = 1.0,
    ) -> StoredRows:
        """Fresh storage."""
        scales = np.zeros(slots, np.float32) if KV_CODECS[codec].scale_bytes else None
        codes = np.zeros((*slots, width), _DTYPES[codec])
        return cls(codec, codes, scales, turned, np.float32(of_layer))

    def write(self, slot: tuple[int, int], heads: F32) -> None:
        """Store the heads of one token, f32[kv_heads, width]."""
        if self.codec == "fp8":
            heads = heads / self.of_layer
        encoded = encode(self.codec, rotated(heads) if self.rotated else heads)
        self.codes[slot] = encoded.codes
        if self.scales is not None:
            self.scales[slot] = encoded.scales

    def read(
        self, slots: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]
    ) -> npt.NDArray[np.float64]:
        """What the tokens in these slots have: f64[tokens, kv_heads, width], still turned."""
        codes = self.codes[slots].astype(np.float64)
        if self.codec == "fp8":
            codes = np.where(np.isnan(codes), np.copysign(480.0, codes), codes) * self.of_layer
        return codes if self.scales is None else codes * self.scales[slots][..., None]

    def copy(self, sources: npt.NDArray[np.int32], targets: npt.NDArray[np.int32]) -> None:
        """Blocks into others."""
        self.codes[targets] = self.codes[sources]
        if self.scales is not None:
            self.scales[targets] = self.scales[sources]


def known_codecs() -> tuple[KVCodec, ...]:
    """Those that can be stored."""
    return tuple(_DTYPES)


def encode(codec: KVCodec, heads: F32) -> StoredHeads:
    """Heads [..., width] as they are stored, those of rotated kinds turned already.

    int8: d = amax / 127, q = nearest(x * (127 / amax)). Four bits: `_four_bits`. Where d is zero
    so is q. A NaN or an infinity makes d one. FP8: to nearest even, 448 at most.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore", under="ignore"):
        if codec == "fp8":
            bounded = np.clip(heads, -_MOST_E4M3, _MOST_E4M3)
            return StoredHeads(bounded.astype(ml_dtypes.float8_e4m3fn), None)
        if not KV_CODECS[codec].scale_bytes:
            return StoredHeads(heads.astype(_DTYPES[codec]), None)
        if codec == "q4_0":
            return _four_bits(heads)
        most = np.abs(heads).max(axis=-1)
        scales = _flushed(most / np.float32(127))
        factors = np.where(scales == 0, np.float32(0), np.float32(127) / most)
        whole = np.rint(heads * factors[..., None])
        return StoredHeads(np.nan_to_num(whole).astype(np.int8), scales)


def _four_bits(heads: F32) -> StoredHeads:
    """q in [-8, 7] and the scale with which they come nearest to x, of all that FACTORS give.

    m is the value of the largest magnitude, the positive one of two; x / m * -8 times a factor is
    rounded to q. With s = sum(q x) and n = sum(q q) the scale s / n leaves sum(x x) - s s / n, so
    the first factor of the largest s s / n is taken.
    """
    most = np.abs(heads).max(axis=-1)
    extreme = np.where(heads.max(axis=-1) == most, most, -most)
    step = _flushed(extreme / np.float32(-8))
    inverse = np.where(step == 0, np.float32(0), np.float32(-8) / extreme)
    x = heads * inverse[..., None]
    q = _whole(x, np.array(FACTORS, np.float32).reshape(-1, *[1] * x.ndim))
    s, n = _lane_sum(q * x), _lane_sum(q * q)
    found = np.where(np.isfinite(step) & (step != 0), s * s / n, np.float32(0))
    found = np.where(np.isnan(found), np.float32(0), found)
    at = found.argmax(axis=0)[None]
    better = np.take_along_axis(found, at, 0)[0] > 0
    s, n = np.take_along_axis(s, at, 0)[0], np.take_along_axis(n, at, 0)[0]
    scales = np.where(better, s / n * step, step)
    codes = np.where(better[..., None], np.take_along_axis(q, at[..., None], 0)[0], q[0])
    return StoredHeads(np.nan_to_num(codes).astype(np.int8), _flushed(scales))


def _whole(x: F32, factor: F32) -> F32:
    whole: F32 = np.clip(np.rint(x * factor), np.float32(-8), np.float32(7))
    return whole


def _lane_sum(x: F32) -> F32:
    """Sums of the last axis: 16 lanes side by side in ascending order, then halves of the lanes."""
    padded = np.zeros((*x.shape[:-1], -(-x.shape[-1] // 16) * 16), np.float32)
    padded[..., : x.shape[-1]] = x
    lanes = np.zeros((*x.shape[:-1], 16), np.float32)
    for at in range(0, padded.shape[-1], 16):
        lanes = lanes + padded[..., at : at + 16]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    total: F32 = lanes[..., 0]
    return total


def _flushed(scales: F32) -> F32:
    """Scales with zero for those that are denormal."""
    flushed: F32 = np.where(np.abs(scales) < LEAST_NORMAL, np.float32(0), scales)
    return flushed


def rotated(heads: F32) -> F32:
    """Heads [..., width] turned by a Hadamard matrix, which is its own inverse.

    In blocks of the largest power of two that divides the width: for strides 1, 2, 4, ... the pairs
    (a, b) so far apart become (a + b, a - b); then all are multiplied by 1 / sqrt(block).
    """
    block = heads.shape[-1] & -heads.shape[-1]
    x = heads.reshape(-1, block)
    stride = 1
    while stride < block:
        pairs = x.reshape(-1, block // (2 * stride), 2, stride)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        x = np.stack((low + high, low - high), axis=2).reshape(-1, block)
        stride *= 2
    turned: F32 = x * np.float32(1 / np.sqrt(block))
    return turned.reshape(heads.shape)
