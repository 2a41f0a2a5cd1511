"""A tensor on its way into another kind: pieces decoded, checked and encoded on several cores.

A piece is some rows; a few pieces for each core are in memory at a time, whatever the tensor's
size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import Codec
from headrace.weights.tensors.source import TensorSource

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Pieces that wait for each thread: one in work and one behind it.
_PER_THREAD = 2


def recoded(
    source: TensorSource,
    codec: Codec,
    importance: Floats | None,
    pool: Executor,
    threads: int,
) -> TensorSource:
    """`source` in another codec, or checked and copied where it is the same.

    importance: float32[matrices, columns], a row for each matrix of a stack. Raises CheckpointError
    naming the tensor: now for importance of another shape, and when pieces are made for values
    that are not finite or that `codec` cannot hold.
    """
    matrices = source.shape[0] if len(source.shape) > 2 else 1
    columns = source.shape[-1] if source.shape else 1
    if importance is not None and importance.shape != (matrices, columns):
        raise CheckpointError(
            f"tensor {source.name!r} has {matrices} matrices of {columns} columns, its importance "
            f"{importance.shape[0]} of {importance.shape[1]}: it was measured on another model"
        )
    rows = int(np.prod(source.shape[:-1], dtype=np.int64))
    rows_each = max(1, rows // matrices)
    row_bytes = source.codec.row_bytes(columns)

    def work(stored: Bytes, first: int) -> Bytes:
        try:
            if codec is source.codec and codec.block_elements > 1:
                return stored
            values = source.codec.decode(stored)
            if not np.isfinite(values).all():
                row = first + int((~np.isfinite(values)).any(axis=1).argmax())
                raise CheckpointError(f"row {row} holds NaN or infinity; the model is damaged")
            if codec is source.codec:
                return stored
            weights = None
            if importance is not None:
                weights = importance[(first + np.arange(len(stored))) // rows_each]
            return codec.encode(values, weights)
        except CheckpointError as error:
            raise CheckpointError(f"tensor {source.name!r}: {error}") from error

    def pieces() -> Iterator[Bytes]:
        waiting: deque[Future[Bytes]] = deque()
        first = 0
        try:
            for piece in source.pieces():
                stored = piece.reshape(-1, row_bytes)
                waiting.append(pool.submit(work, stored, first))
                first += len(stored)
                if len(waiting) >= _PER_THREAD * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    return TensorSource(source.name, source.shape, codec, pieces)
