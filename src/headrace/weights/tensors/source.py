"""Tensors on their way into a file: name, shape, codec, and bytes made piece by piece.

Weights are never held as a whole: a piece of some rows is decoded, encoded and written, then the
next. A tensor that keeps its codec is copied byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import F32, Codec
from headrace.weights.files.mapped import release
from headrace.weights.tensors.tensor import Tensor

# Pieces whose memory is kept behind the one that was given last: others may be at work on them.
_RELEASE_PIECES = 8
# Values per piece: 4 MiB of float32, small beside any model and large beside Python's overhead.
PIECE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class TensorSource:
    """A tensor to be written. `pieces` gives its bytes in order; it may be called once."""

    name: str
    shape: tuple[int, ...]
    codec: Codec
    pieces: Callable[[], Iterable[npt.NDArray[np.uint8]]]

    @property
    def nbytes(self) -> int:
        """Bytes the pieces must add up to; raises CheckpointError for a width the codec refuses."""
        n_rows = 1
        for size in self.shape[:-1]:
            n_rows *= size
        return n_rows * self.codec.row_bytes(self.shape[-1] if self.shape else 1)

    def write_to(self, file: BinaryIO) -> None:
        """Write all pieces; raises CheckpointError when they are not `nbytes` together."""
        written = 0
        for piece in self.pieces():
            file.write(np.ascontiguousarray(piece).data)
            written += piece.nbytes
        if written != self.nbytes:
            raise CheckpointError(
                f"tensor {self.name!r} gave {written} bytes; its shape {self.shape} as "
                f"{self.codec.name} needs {self.nbytes}"
            )


def source_of_tensor(
    tensor: Tensor,
    name: str,
    codec: Codec,
    row_order: npt.NDArray[np.int32] | None = None,
) -> TensorSource:
    """`tensor` under another name, codec and order of rows.

    row_order: int32[rows'], as in `Tensor.select_rows`; for a vector it orders the values. Values
    a codec refuses raise CheckpointError naming the tensor when the pieces are made.
    """
    if row_order is not None and len(tensor.shape) == 1:
        values = tensor.to_f32()[row_order]
        return source_of_array(values, name, codec)
    if row_order is not None:
        tensor = tensor.select_rows(row_order)

    def pieces() -> Iterator[npt.NDArray[np.uint8]]:
        data = tensor.data
        n_rows = len(data) if tensor.row_order is None else len(tensor.row_order)
        width = tensor.shape[-1] if tensor.shape else 1
        step = max(1, PIECE_ELEMENTS // max(1, width))
        for first in range(0, n_rows, step):
            if tensor.row_order is None and first >= 2 * _RELEASE_PIECES * step:
                done = first - _RELEASE_PIECES * step
                release(data[done - step : done])
            places = np.arange(first, min(first + step, n_rows))
            if tensor.row_order is not None:
                places = tensor.row_order[first : first + step].astype(np.int64)
                rows = data[places]
            else:
                rows = data[first : first + step]
            yield rows if codec is tensor.codec else _recode(tensor, codec, rows, places)
        release(data)

    return TensorSource(name, tensor.shape, codec, pieces)


def source_of_array(values: npt.NDArray[np.float32], name: str, codec: Codec = F32) -> TensorSource:
    """float32 values of any shape, encoded when written."""
    return TensorSource(name, values.shape, codec, lambda: [codec.encode(np.atleast_1d(values))])


def source_of_rows(
    rows: npt.NDArray[np.uint8], shape: tuple[int, ...], name: str, codec: Codec
) -> TensorSource:
    """Bytes that are `codec`'s already, uint8[rows, row_bytes], written as they are."""
    return TensorSource(name, shape, codec, lambda: [rows])


def _recode(
    tensor: Tensor, codec: Codec, rows: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    try:
        return codec.encode(tensor.decoded(rows, places))
    except CheckpointError as error:
        raise CheckpointError(f"tensor {tensor.name!r}: {error}") from error
