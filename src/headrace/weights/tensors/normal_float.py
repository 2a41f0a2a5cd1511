"""Matrices of NF4 whose codes and scales a folder of bitsandbytes stores in tensors of their own.

They are views: `data` puts the rows of blocks together at each access.

Source: bitsandbytes functional.py (QuantState, dequantize_4bit, dequantize_blockwise).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import NF4
from headrace.weights.tensors.grouped_tensor import LEAST_SCALE, MOST_SCALE
from headrace.weights.tensors.pieces import PiecedTensor

Bytes = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]


class NormalFloatTensor(PiecedTensor):
    """A matrix of NF4."""

    pairs: Bytes
    """uint8[rows * columns / 2], the first of two neighbours in the high half of a byte."""
    scales: Callable[[], F32]
    """float32[blocks of 64 values], one after another as the values are."""
    stored_bytes: int
    """Bytes that the folder holds it in, scales included."""

    def __init__(
        self, name: str, shape: tuple[int, int], pairs: Bytes, scales: Callable[[], F32],
        stored_bytes: int,
    ) -> None:  # fmt: skip
        super().__init__(name, shape, NF4)
        for field, value in (("pairs", pairs), ("scales", scales), ("stored_bytes", stored_bytes)):
            object.__setattr__(self, field, value)

    @property
    def nbytes(self) -> int:
        """Bytes of storage as the folder has it."""
        return self.stored_bytes

    def joined(self) -> Bytes:
        """The rows in one array; raises CheckpointError for a scale that no block has."""
        rows, columns = self.shape
        scales = self.scales()
        good = (scales == 0) | (scales >= LEAST_SCALE) & (scales <= MOST_SCALE)
        if not good.all():
            place = int(np.argmin(good))
            raise CheckpointError(
                f"tensor {self.name}: the scale of block {place} is {scales[place]}; the largest "
                f"size of a block has to be 0, or from {LEAST_SCALE:.3g} to {MOST_SCALE:.3g}. The "
                "file is damaged, or was made with an error: fetch it again"
            )
        out = np.empty(len(scales), NF4.layout)
        out["d"] = scales
        codes = self.pairs.reshape(len(scales), -1)
        np.bitwise_or(codes >> np.uint8(4), codes << np.uint8(4), out=out["qs"])
        return out.view(np.uint8).reshape(rows, NF4.row_bytes(columns))
