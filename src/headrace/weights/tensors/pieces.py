"""Tensors of which no file holds a row in one piece.

They are views all the same: nothing is read before `data` is accessed, which puts the rows together
in a fresh array. A backend may read the pieces where they lie instead, and never need that array.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import MXFP4
from headrace.weights.files.mapped import release
from headrace.weights.tensors.tensor import Tensor

if TYPE_CHECKING:
    from headrace.weights.codecs import Codec

Bytes = npt.NDArray[np.uint8]


class PiecedTensor(Tensor, ABC):
    """A matrix or vector whose rows `data` puts together at each access.

    Nothing is kept, so that a reader who takes one after another needs the memory of one.
    """

    def __init__(self, name: str, shape: tuple[int, ...], codec: Codec) -> None:
        for field, value in (("name", name), ("shape", shape), ("codec", codec)):
            object.__setattr__(self, field, value)
        for field in ("row_order", "column_order"):
            object.__setattr__(self, field, None)

    @abstractmethod
    def joined(self) -> Bytes:
        """The rows in one array."""

    @property
    def data(self) -> Bytes:
        """uint8[rows, row_bytes], a fresh array."""
        return self.joined()

    @property
    def nbytes(self) -> int:
        """Bytes of storage, without putting them together."""
        return math.prod(self.shape[:-1]) * self.codec.row_bytes(self.shape[-1])

    def let_go(self) -> None:
        """Free the memory of the pieces that are views of a file, not of those that functions
        give."""
        for piece in vars(self).values():
            if isinstance(piece, np.ndarray):
                release(piece)

    def select_rows(self, order: npt.NDArray[np.int32]) -> Tensor:
        """The rows in another order, put together and held."""
        return self.held().select_rows(order)

    def held(self) -> Tensor:
        """The same tensor with its rows put together once and kept."""
        return Tensor(self.name, self.shape, self.codec, self.data, column_order=self.column_order)


class TurnedTensor(PiecedTensor):
    """A matrix of plain values, or a vector, that is stored turned, among others' values too."""

    values: Bytes
    """uint8[rows, columns, bytes of a value], a strided view of the file; rows of a vector are its
    values."""

    def __init__(self, name: str, shape: tuple[int, ...], codec: Codec, values: Bytes) -> None:
        super().__init__(name, shape, codec)
        object.__setattr__(self, "values", values)

    def joined(self) -> Bytes:
        rows = math.prod(self.shape[:-1])
        return np.ascontiguousarray(self.values).reshape(rows, self.codec.row_bytes(self.shape[-1]))


_MOST_EXPONENT = 252
"""255 is NaN (OCP Microscaling Formats 1.0, 5.4.1); of 253 and 254 the largest numbers of E2M1 are
beyond float32."""


class SplitTensor(PiecedTensor):
    """A matrix of MXFP4 whose numbers and exponents are stored apart."""

    pairs: Bytes
    """uint8[rows, blocks, 16], two neighbouring values in a byte, the first in the low half; a view
    of the file, as the exponents are."""
    exponents: Bytes
    """uint8[rows, blocks]"""

    def __init__(self, name: str, pairs: Bytes, exponents: Bytes) -> None:
        rows, blocks = exponents.shape
        super().__init__(name, (rows, blocks * MXFP4.block_elements), MXFP4)
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "exponents", exponents)

    def check(self) -> None:
        """Read all exponents; raises CheckpointError naming a block that has no finite values."""
        if self.exponents.max(initial=0) <= _MOST_EXPONENT:
            return
        row, block = np.argwhere(self.exponents > _MOST_EXPONENT)[0].tolist()
        raise CheckpointError(
            f"tensor {self.name}: block {block} of row {row} has the exponent "
            f"{self.exponents[row, block]}; it has to be at most {_MOST_EXPONENT}, as 255 is NaN "
            "and others give infinity. The file is damaged, or was made with an error: fetch it "
            "again"
        )

    def joined(self) -> Bytes:
        """The blocks as GGUF has them; raises CheckpointError as `check` does."""
        self.check()
        rows, count = self.exponents.shape
        stored = np.empty((rows, count, MXFP4.block_bytes), np.uint8)
        stored[:, :, 0] = self.exponents
        # Values 0 to 15 of a block are in its first eight bytes, 16 to 31 in the others.
        low, high = self.pairs[:, :, :8], self.pairs[:, :, 8:]
        stored[:, :, 1::2] = (low & 15) | (high << 4)
        stored[:, :, 2::2] = (low >> 4) | (high & 0xF0)
        return stored.reshape(rows, count * MXFP4.block_bytes)
