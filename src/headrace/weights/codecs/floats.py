"""Codecs whose blocks are one number: F32, F16, BF16.

Sources: ggml.h (type ids), the safetensors format (dtype names).
"""

from __future__ import annotations

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.codecs.codec import Blocks, Codec, Floats


def _decode_number(blocks: Blocks, out: Floats) -> None:
    out[:, 0] = blocks["value"]


def _encode_f32(values: Floats, blocks: Blocks) -> None:
    blocks["value"] = values[:, 0]


def _encode_f16(values: Floats, blocks: Blocks) -> None:
    with np.errstate(over="ignore"):
        halves = values[:, 0].astype("<f2")
    overflow = np.isinf(halves) & np.isfinite(values[:, 0])
    if overflow.any():
        raise CheckpointError(
            f"value {values[overflow, 0][0]:g} cannot be F16: its limit is 65504; use BF16 or F32"
        )
    blocks["value"] = halves


def _decode_bf16(blocks: Blocks, out: Floats) -> None:
    np.left_shift(blocks["bits"], np.uint32(16), out=out[:, 0].view(np.uint32))


def _encode_bf16(values: Floats, blocks: Blocks) -> None:
    bits = values[:, 0].view(np.uint32)
    # Adding 0x7fff, and one more where the kept part is odd, carries exactly when nearest-even
    # rounds up. NaNs skip it, or a large payload would carry into the sign; setting the quiet bit
    # keeps one whose payload lies wholly in the dropped half a NaN.
    kept = bits >> np.uint32(16)
    rounded = (bits + (np.uint32(0x7FFF) + (kept & np.uint32(1)))) >> np.uint32(16)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    blocks["bits"] = np.where(is_nan, kept | np.uint32(0x40), rounded)


F32 = Codec(
    "F32", 1, np.dtype([("value", "<f4")]), 0, _decode_number, _encode_f32, safetensors_dtype="F32"
)
F16 = Codec(
    "F16", 1, np.dtype([("value", "<f2")]), 1, _decode_number, _encode_f16, safetensors_dtype="F16"
)
BF16 = Codec(
    "BF16", 1, np.dtype([("bits", "<u2")]), 30, _decode_bf16, _encode_bf16, safetensors_dtype="BF16"
)
