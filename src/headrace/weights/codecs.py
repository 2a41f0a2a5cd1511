"""Codecs: one storage kind each, how its bytes become float32 and how float32 becomes its bytes.

A codec works on whole rows. A row is a run of `width` values along the contiguous dimension, made
of blocks of `block_elements` values in `block_bytes` bytes. Decoding is exact (every stored value
is a float32); encoding rounds as the format's own tools do, and refuses what the kind cannot
hold. Codecs know nothing of files, tensors' names or models.

Sources: ggml-quants.c and ggml-common.h (block layouts, rounding), gguf-py constants.py (type ids),
the safetensors format (dtype names).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_Q8_0_ELEMENTS = 32
_Q8_0_BYTES = 34
# Rows are encoded in slices of about this many values, so that temporaries stay in the cache.
_ENCODE_SLICE_ELEMENTS = 1 << 18


@dataclass(frozen=True, eq=False)
class Codec:
    """One storage kind. Instances are the module's registry; compare them with `is` or by name.

    name: as in GGUF ("F32", "F16", "BF16", "Q8_0").
    block_elements, block_bytes: values in one block and the bytes they take.
    gguf_type: tensor type id in GGUF files.
    safetensors_dtype: dtype name in safetensors headers; None where the format has none.
    """

    name: str
    block_elements: int
    block_bytes: int
    gguf_type: int
    safetensors_dtype: str | None
    _decode: Callable[[Bytes], Floats] = field(repr=False)
    _encode: Callable[[Floats], Bytes] = field(repr=False)

    @property
    def bits_per_weight(self) -> float:
        """Stored bits per value, scales included."""
        return 8.0 * self.block_bytes / self.block_elements

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of `width` values.

        Raises CheckpointError when `width` is not a whole number of blocks.
        """
        blocks, rest = divmod(width, self.block_elements)
        if rest or width < 0:
            raise CheckpointError(
                f"a row of width {width} cannot be {self.name}: the width must be a multiple of "
                f"its block size {self.block_elements}; store this tensor as F16 or F32"
            )
        return blocks * self.block_bytes

    def decode(self, rows: Bytes) -> Floats:
        """float32[..., width] of uint8[..., row_bytes], exact, always a fresh array.

        Raises CheckpointError when the last dimension is not a whole number of blocks.
        """
        if rows.dtype != np.uint8:
            raise TypeError(f"{self.name}.decode takes uint8 rows, not {rows.dtype}")
        blocks, rest = divmod(rows.shape[-1], self.block_bytes)
        if rest:
            raise CheckpointError(
                f"rows of {rows.shape[-1]} bytes are not {self.name}: the length must be a "
                f"multiple of its block of {self.block_bytes} bytes"
            )
        shape = (*rows.shape[:-1], blocks * self.block_elements)
        flat = np.ascontiguousarray(rows).reshape(-1)
        return self._decode(flat).reshape(shape)

    def encode(self, values: npt.ArrayLike) -> Bytes:
        """uint8[..., row_bytes] of float32[..., width].

        F16 and BF16 round to nearest even and keep NaN; Q8_0 as ggml's reference (see `_to_q8_0`).
        Raises CheckpointError when the width is not a whole number of blocks, and when a value
        cannot be held: a finite value beyond F16's range, or for Q8_0 NaN, infinity and
        magnitudes above 127 * 65504.
        """
        array = np.ascontiguousarray(values, dtype=np.float32)
        if array.ndim == 0:
            raise ValueError(f"{self.name}.encode takes rows, not a scalar")
        row_bytes = self.row_bytes(array.shape[-1])
        out = np.empty((*array.shape[:-1], row_bytes), np.uint8)
        flat_in, flat_out = array.reshape(-1), out.reshape(-1)
        blocks_per_slice = max(1, _ENCODE_SLICE_ELEMENTS // self.block_elements)
        for block in range(0, flat_in.size // self.block_elements, blocks_per_slice):
            stop = block + blocks_per_slice
            part = flat_in[block * self.block_elements : stop * self.block_elements]
            flat_out[block * self.block_bytes : stop * self.block_bytes] = self._encode(part)
        return out


def _from_f32(data: Bytes) -> Floats:
    return data.view("<f4").astype(np.float32, copy=True)


def _to_f32(values: Floats) -> Bytes:
    return values.astype("<f4", copy=False).view(np.uint8)


def _from_f16(data: Bytes) -> Floats:
    return data.view("<f2").astype(np.float32)


def _to_f16(values: Floats) -> Bytes:
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    overflow = np.isinf(halves) & np.isfinite(values)
    if overflow.any():
        raise CheckpointError(
            f"value {values[overflow][0]:g} cannot be F16: its limit is 65504; use BF16 or F32"
        )
    return halves.view(np.uint8)


def _from_bf16(data: Bytes) -> Floats:
    return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _to_bf16(values: Floats) -> Bytes:
    bits = values.view(np.uint32)
    # Adding 0x7fff, and one more where the kept part is odd, carries exactly when nearest-even
    # rounds up. NaNs skip it, or a large payload would carry into the sign; setting the quiet bit
    # keeps one whose payload lies wholly in the dropped half a NaN.
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(
        16
    )
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(is_nan, quiet, rounded).astype("<u2").view(np.uint8)


def _from_q8_0(data: Bytes) -> Floats:
    blocks = data.reshape(-1, _Q8_0_BYTES)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    values = blocks[:, 2:].view(np.int8).astype(np.float32)
    # An infinite scale times a zero quant is NaN: what the bytes say, so no warning about it.
    with np.errstate(invalid="ignore"):
        np.multiply(values, scale, out=values)
    return values.reshape(-1)


def _to_q8_0(values: Floats) -> Bytes:
    """Blocks of 32: scale d = max|x| / 127 as F16, quants round(x * (1 / d)), halves away from 0.

    The quants use the float32 d, not the F16 one it is stored as (ggml-quants.c,
    quantize_row_q8_0_ref). Where 1 / d overflows (max|x| below about 4e-37) the stored scale is 0
    and the quants are written as 0.
    """
    blocks = values.reshape(-1, _Q8_0_ELEMENTS)
    peak = np.abs(blocks).max(axis=1, keepdims=True)
    scale = peak / np.float32(127)
    with np.errstate(over="ignore"):
        half = scale.astype("<f2")
    if not np.isfinite(half).all():
        worst = peak[~np.isfinite(half)][0]
        raise CheckpointError(
            f"a block whose largest magnitude is {worst:g} cannot be Q8_0: values must be finite "
            f"and its scale at most 65504, so magnitudes up to {127 * 65504}; use BF16 or F32"
        )
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / scale
    inverse[~np.isfinite(inverse)] = 0
    scaled = blocks * inverse
    magnitude = np.abs(scaled)
    whole = np.floor(magnitude)
    whole += (magnitude - whole) >= np.float32(0.5)
    out = np.empty((blocks.shape[0], _Q8_0_BYTES), np.uint8)
    out[:, :2] = half.view(np.uint8)
    out[:, 2:] = np.copysign(whole, scaled).astype(np.int8).view(np.uint8)
    return out.reshape(-1)


F32 = Codec("F32", 1, 4, 0, "F32", _from_f32, _to_f32)
F16 = Codec("F16", 1, 2, 1, "F16", _from_f16, _to_f16)
BF16 = Codec("BF16", 1, 2, 30, "BF16", _from_bf16, _to_bf16)
Q8_0 = Codec("Q8_0", _Q8_0_ELEMENTS, _Q8_0_BYTES, 8, None, _from_q8_0, _to_q8_0)

CODECS: dict[str, Codec] = {codec.name: codec for codec in (F32, F16, BF16, Q8_0)}
_BY_GGUF_TYPE = {codec.gguf_type: codec for codec in CODECS.values()}
_BY_SAFETENSORS = {
    codec.safetensors_dtype: codec for codec in CODECS.values() if codec.safetensors_dtype
}

# Names of the GGUF type ids that have no codec here, only so that a refusal can say which it was
# (gguf-py constants.py, GGMLQuantizationType).
_OTHER_GGUF_TYPES = {
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32",
    27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
    41: "Q1_0", 42: "Q2_0",
}  # fmt: skip


def get_codec(name: str) -> Codec:
    """The codec called `name`; raises CheckpointError naming what there is."""
    codec = CODECS.get(name)
    if codec is None:
        raise CheckpointError(f"codec {name!r} is not supported; supported: {', '.join(CODECS)}")
    return codec


def codec_of_gguf_type(type_id: int) -> Codec:
    """The codec of a GGUF tensor type id; raises CheckpointError naming the type."""
    codec = _BY_GGUF_TYPE.get(type_id)
    if codec is None:
        name = _OTHER_GGUF_TYPES.get(type_id)
        what = f"{type_id} ({name}) is not supported" if name else f"{type_id} is unknown"
        supported = ", ".join(f"{codec.gguf_type} ({codec.name})" for codec in CODECS.values())
        raise CheckpointError(f"tensor type {what}; supported: {supported}")
    return codec


def codec_of_safetensors_dtype(dtype: str) -> Codec:
    """The codec of a safetensors dtype; raises CheckpointError naming what there is."""
    codec = _BY_SAFETENSORS.get(dtype)
    if codec is None:
        raise CheckpointError(
            f"dtype {dtype!r} is not supported; supported: {', '.join(_BY_SAFETENSORS)}"
        )
    return codec
