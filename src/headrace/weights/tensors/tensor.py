"""One stored tensor: shape, codec and the mapped bytes it lies in.

A tensor is a view: nothing is read or converted until somebody asks. Shapes are in Hugging Face
order, (out, in) for matrices, whatever the file's own order is.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headrace.weights.files.mapped import release

if TYPE_CHECKING:
    from headrace.weights.codecs import Codec


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor whose rows are stored one after another."""

    name: str
    shape: tuple[int, ...]
    codec: Codec
    data: npt.NDArray[np.uint8]
    """uint8[rows, row_bytes], contiguous, usually a read-only view of a mapped file; `rows` is the
    product of all dimensions but the last (1 for a vector)."""
    row_order: npt.NDArray[np.int32] | None = None
    """int32[rows'] or None. When given, row i of the tensor is stored row row_order[i] (how rows of
    Q and K are put back in order without touching the file); shape[0] is its length."""
    column_order: npt.NDArray[np.int32] | None = None
    """int32[columns] or None. When given, column i of `data` is the tensor's column column_order[i]
    (GPTQ's act-order: columns of a group lie together so that they share a scale)."""

    @property
    def nbytes(self) -> int:
        """Bytes of storage of its rows, without padding."""
        if self.row_order is None:
            return int(self.data.nbytes)
        # Of a selection `data` has the other rows too.
        return len(self.row_order) * int(self.data.shape[-1])

    @property
    def num_values(self) -> int:
        """Values it holds; 1 for a scalar."""
        return math.prod(self.shape)

    def let_go(self) -> None:
        """Free the memory of the file's pages it lies in, which are read again where it is used
        again; for whoever has packed it."""
        release(self.data)

    def renamed(self, name: str) -> Tensor:
        """This tensor under another name; its parts stay where they are."""
        other = copy.copy(self)
        object.__setattr__(other, "name", name)
        return other

    def select_rows(self, order: npt.NDArray[np.int32]) -> Tensor:
        """This tensor with its rows in another order; only for matrices. Copies nothing."""
        if len(self.shape) != 2:
            raise ValueError(f"{self.name}: rows of a {len(self.shape)}-d tensor cannot be ordered")
        current = self.row_order
        new = order if current is None else current[order]
        return replace(
            self, shape=(len(new), self.shape[1]), row_order=np.ascontiguousarray(new, np.int32)
        )

    def transposed(self) -> Tensor:
        """The same values with rows and columns exchanged, copied; only for plain matrices.

        Raises ValueError for other shapes, and for codecs whose blocks run along a row.
        """
        rows, width = self.shape if len(self.shape) == 2 else (0, 0)
        if not width or self.codec.block_elements > 1 or self.row_order is not None:
            raise ValueError(
                f"{self.name}: {self.codec.name} of shape {list(self.shape)} cannot be transposed; "
                "matrices of F32, F16 and BF16 can"
            )
        values = self.data.reshape(rows, width, self.codec.block_bytes)
        turned = np.ascontiguousarray(values.swapaxes(0, 1)).reshape(width, -1)
        return replace(self, shape=(width, rows), data=turned)

    def to_f32(self) -> npt.NDArray[np.float32]:
        """The values as float32[shape]: the codec's exact decoding, in a fresh array."""
        data = self.data
        rows = data if self.row_order is None else data[self.row_order]
        places = np.arange(len(data)) if self.row_order is None else self.row_order
        return self.decoded(rows, places.astype(np.int64)).reshape(self.shape)

    def decoded(
        self, rows: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float32]:
        """float32[n, width] of stored rows uint8[n, row_bytes] that are rows `places` of `data`."""
        del places
        values = self.codec.decode(rows)
        if self.column_order is None:
            return values
        ordered = np.empty_like(values)
        ordered[..., self.column_order] = values
        return ordered
