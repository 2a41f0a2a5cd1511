"""What a codec is: one storage kind, how its bytes become float32, and float32 its bytes.

A codec works on whole rows. A row is a run of values along the contiguous dimension, made of
blocks of `block_elements` values laid out as `layout` says. Decoding is exact in the sense of the
format's own library: the same float32 operations in the same order as gguf-py's. Encoding rounds as
that library does, and refuses what the kind cannot hold. Codecs know nothing of files or models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Blocks = npt.NDArray[np.void]

# Rows are worked on in slices of about this many values, so that temporaries stay in the cache.
_SLICE_ELEMENTS = 1 << 18


@dataclass(frozen=True, eq=False)
class Codec:
    """One storage kind. Instances are the package's registry; compare them with `is` or by name."""

    name: str
    """As in GGUF ("F32", "Q8_0", "Q4_K")."""
    block_elements: int
    """Values in one block."""
    layout: np.dtype[Any]
    """The fields of one block in the order they are stored, little-endian, without padding."""
    gguf_type: int
    """Tensor type id in GGUF files."""
    _decode: Callable[[Blocks, Floats], None] = field(repr=False)
    _encode: Callable[[Floats, Blocks], None] | None = field(default=None, repr=False)
    _encode_weighed: Callable[[Floats, Blocks, Floats | None], None] | None = field(
        default=None, repr=False
    )
    safetensors_dtype: str | None = None
    """Dtype name in safetensors headers; None where the format has none."""

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return self.layout.itemsize

    @property
    def bits_per_weight(self) -> float:
        """Stored bits per value, scales included."""
        return 8.0 * self.block_bytes / self.block_elements

    @property
    def can_encode(self) -> bool:
        """Whether `encode` works; every codec decodes."""
        return self._encode is not None or self._encode_weighed is not None

    @property
    def takes_importance(self) -> bool:
        """Whether importance changes what `encode` gives: whether scales are searched for."""
        return self._encode_weighed is not None

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
        """float32[..., width] of uint8[..., row_bytes], always a fresh array.

        Any bytes decode, to infinity or NaN where their scale says so.
        Raises CheckpointError when the last dimension is not a whole number of blocks.
        """
        if rows.dtype != np.uint8:
            raise TypeError(f"{self.name}.decode takes uint8 rows, not {rows.dtype}")
        per_row, rest = divmod(rows.shape[-1], self.block_bytes)
        if rest:
            raise CheckpointError(
                f"rows of {rows.shape[-1]} bytes are not {self.name}: the length must be a "
                f"multiple of its block of {self.block_bytes} bytes"
            )
        out = np.empty((*rows.shape[:-1], per_row * self.block_elements), np.float32)
        blocks = np.ascontiguousarray(rows).reshape(-1).view(self.layout)
        values = out.reshape(-1, self.block_elements)
        # An infinite scale times a zero quant is NaN: what the bytes say, so no warning about it.
        with np.errstate(invalid="ignore", over="ignore"):
            for part in self._slices(len(blocks)):
                self._decode(blocks[part], values[part])
        return out

    def encode(self, values: npt.ArrayLike, importance: Floats | None = None) -> Bytes:
        """uint8[..., row_bytes] of float32[..., width].

        F16 and BF16 round to nearest even and keep NaN; kinds with one scale in a block round as
        ggml's reference does; others are searched for (`search.py`). importance: weights of the
        squared errors, 0 or more, of a shape that broadcasts to that of `values`; kinds that
        take none go without. Raises CheckpointError when this kind has no encoder, when the width
        is not a whole number of blocks, and when a value cannot be held: a finite value beyond
        F16's range, or for kinds with scales NaN, infinity and scales beyond F16's range.
        """
        encode = self.check_can_encode()
        array = np.ascontiguousarray(values, dtype=np.float32)
        if array.ndim == 0:
            raise ValueError(f"{self.name}.encode takes rows, not a scalar")
        out = np.empty((*array.shape[:-1], self.row_bytes(array.shape[-1])), np.uint8)
        blocks = out.reshape(-1).view(self.layout)
        source = array.reshape(-1, self.block_elements)
        weights = None
        if importance is not None and self.takes_importance:
            spread = np.broadcast_to(importance.astype(np.float32, copy=False), array.shape)
            weights = np.ascontiguousarray(spread).reshape(source.shape)
        for part in self._slices(len(blocks)):
            encode(source[part], blocks[part], None if weights is None else weights[part])
        return out

    def check_can_encode(self) -> Callable[[Floats, Blocks, Floats | None], None]:
        """The encoder of blocks; raises CheckpointError with the remedy when there is none."""
        plain, weighed = self._encode, self._encode_weighed
        if plain is None and weighed is None:
            raise CheckpointError(
                f"{self.name} cannot be encoded: files of this kind are read, run and copied, not "
                "made; choose Q8_0 or another kind with an encoder (docs/checkpoints.md), or make "
                "the file with llama.cpp's llama-quantize"
            )

        def encode(values: Floats, blocks: Blocks, weights: Floats | None) -> None:
            if weighed is not None and (plain is None or weights is not None):
                weighed(values, blocks, weights)
            elif plain is not None:
                plain(values, blocks)

        return encode

    def _slices(self, n_blocks: int) -> list[slice]:
        step = max(1, _SLICE_ELEMENTS // self.block_elements)
        return [slice(first, first + step) for first in range(0, n_blocks, step)]


def f32_column(blocks: Blocks, name: str) -> Floats:
    """float32[n, 1] of an F16 field, to multiply rows of quants by."""
    column: Floats = blocks[name].astype(np.float32)[:, None]
    return column


def nibbles(packed: Bytes) -> Bytes:
    """uint8[..., 2k] of uint8[..., k]: all low halves of the bytes, then all high halves."""
    width = packed.shape[-1]
    out = np.empty((*packed.shape[:-1], 2 * width), np.uint8)
    np.bitwise_and(packed, 15, out=out[..., :width])
    np.right_shift(packed, 4, out=out[..., width:])
    return out
