"""Matrices of F8_E4M3 with their scales: a weight is float32(code) * scale, rounded once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headrace.errors import UnsupportedModelError
from headrace.weights.tensors.tensor import Tensor

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ScaledTensor(Tensor):
    """A matrix whose values share scales in blocks of rows and columns, or a stack of matrices, in
    which blocks are of the rows of all of them, one after another.
    """

    scales: F32 = field(kw_only=True)
    """float32[row blocks, column blocks], by the rows as they are stored."""
    block: tuple[int, int] = field(kw_only=True)
    """Rows and columns of a block; the last ones may be smaller."""
    scale_bytes: int = field(kw_only=True)
    """Bytes that the file holds the scales in."""

    @property
    def nbytes(self) -> int:
        """Bytes of storage, the scales' included."""
        return super().nbytes + self.scale_bytes

    def part(self, name: str, shape: tuple[int, int], first: int) -> ScaledTensor:
        """The matrix `name` in stored rows [first, first + rows), one of a stack.

        Raises UnsupportedModelError where they share a scale with some rows of another matrix.
        """
        rows, height = shape[0], self.block[0]
        if first % height == 0 and rows % height == 0:
            scales = self.scales[first // height : (first + rows) // height]
        elif height % rows == 0 and first % rows == 0:
            scales, height = self.scales[first // height : first // height + 1], rows
        else:
            raise UnsupportedModelError(
                f"tensor {self.name}: rows {first} to {first + rows}, which are {name}, share "
                f"scales with others: each is of {height} rows. Use a folder with a tensor for "
                "each matrix"
            )
        return ScaledTensor(
            name, shape, self.codec, self.data[first : first + rows],
            scales=scales, block=(height, self.block[1]),
            scale_bytes=self.scale_bytes * scales.size // max(1, self.scales.size),
        )  # fmt: skip

    def transposed(self) -> Tensor:
        """Raises ValueError: scales run along rows."""
        raise ValueError(f"{self.name}: {self.codec.name} with scales cannot be transposed")

    def decoded(
        self, rows: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float32]:
        values = self.codec.decode(rows)
        columns = np.arange(values.shape[-1]) // self.block[1]
        # An overflow is infinite, as in the maker's own float32.
        with np.errstate(over="ignore"):
            scaled: F32 = values * self.scales[places // self.block[0]][:, columns]
        return scaled
