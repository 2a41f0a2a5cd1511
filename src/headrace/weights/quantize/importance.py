"""The importance of columns: how much what enters a matrix weighs, in llama.cpp's imatrix files.

For every matrix such a file holds the sum of squares of each of its inputs over some text, and over
how many tokens: their quotient is the weight of a column's rounding errors. Stacks of experts have
a row and a count for each.

Source: llama.cpp, tools/imatrix/imatrix.cpp (save_imatrix), tools/quantize/quantize.cpp
(load_imatrix, which takes 1 where nothing was counted).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, shown
from headrace.weights.codecs import F32
from headrace.weights.gguf.file import GGUFFile, read_gguf
from headrace.weights.gguf.values import Typed, ValueType
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.tensors.source import source_of_array

Floats = npt.NDArray[np.float32]

_TYPE = "imatrix"
_DATASETS, _CHUNKS, _CHUNK_TOKENS = (
    f"imatrix.{key}" for key in ("datasets", "chunk_count", "chunk_size")
)
_SUMS, _COUNTS = ".in_sum2", ".counts"


@dataclass(frozen=True)
class ColumnSums:
    """Sums over the inputs of one matrix, or of a stack of them."""

    squares: Floats
    """float32[matrices, columns]: sums of squares of each input."""
    counts: Floats
    """float32[matrices]: tokens that each of them saw."""

    def importance(self) -> Floats:
        """float32[matrices, columns]: mean squares; 1 in a matrix that saw nothing."""
        seen = self.counts[:, None] > 0
        means = self.squares / np.where(seen, self.counts[:, None], np.float32(1))
        return np.where(seen, means, np.float32(1)).astype(np.float32)


@dataclass(frozen=True)
class ImportanceFile:
    """The contents of an imatrix file."""

    sums: Mapping[str, ColumnSums]
    """By the name of the matrix in a model's file ("blk.0.attn_q.weight")."""
    datasets: tuple[str, ...] = ()
    """The names of the texts."""
    chunks: int = 0
    chunk_tokens: int = 0


def read_importance(path: Path) -> ImportanceFile:
    """The imatrix file at `path`.

    Raises CheckpointError for what is damaged, is of the format before GGUF, or holds numbers that
    are negative or not finite.
    """
    try:
        file = read_gguf(path)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error} (an importance file in GGUF is required: older .dat files become one with "
            "llama-imatrix --in-file FILE -o FILE.gguf)"
        ) from error
    kind = file.metadata.scalar("general.type", "")
    if kind != _TYPE:
        raise CheckpointError(f"{path}: general.type is {shown(kind)}; {_TYPE!r} is required")
    sums = {}
    for name in file.tensors:
        if name.endswith(_SUMS):
            matrix = name.removesuffix(_SUMS)
            sums[matrix] = ColumnSums(*_numbers(file, matrix))
    datasets = file.metadata[_DATASETS] if file.metadata.is_strings(_DATASETS) else ()
    return ImportanceFile(
        sums,
        tuple(datasets),
        int(file.metadata.scalar(_CHUNKS, 0)),
        int(file.metadata.scalar(_CHUNK_TOKENS, 0)),
    )


def _numbers(file: GGUFFile, matrix: str) -> tuple[Floats, Floats]:
    squares, counts = file.tensors[matrix + _SUMS], file.tensors.get(matrix + _COUNTS)
    if counts is None:
        raise CheckpointError(f"{file.path}: tensor {matrix + _COUNTS!r} is missing")
    by_matrix = np.atleast_2d(squares.to_f32())
    numbers = counts.to_f32().reshape(-1)
    if by_matrix.ndim != 2 or len(by_matrix) != len(numbers):
        raise CheckpointError(
            f"{file.path}: {matrix + _SUMS!r} has shape {list(squares.shape)} and "
            f"{matrix + _COUNTS!r} {list(counts.shape)}; [matrices, columns] and a count for each "
            "are required"
        )
    for name, values in ((_SUMS, by_matrix), (_COUNTS, numbers)):
        if not (np.isfinite(values) & (values >= 0)).all():
            raise CheckpointError(
                f"{file.path}: {matrix + name!r} holds numbers that are negative or not finite; "
                "make the file again"
            )
    return by_matrix, numbers


def write_importance(path: Path, file: ImportanceFile) -> int:
    """Write `file` as llama.cpp does; the size in bytes."""
    entries: dict[str, Any] = {
        "general.type": _TYPE,
        _DATASETS: np.array(file.datasets, np.str_),
        _CHUNKS: Typed(ValueType.UINT32, file.chunks),
        _CHUNK_TOKENS: Typed(ValueType.UINT32, file.chunk_tokens),
    }
    sources = []
    for name in sorted(file.sums):
        sums = file.sums[name]
        sources.append(source_of_array(sums.squares, name + _SUMS, F32))
        sources.append(source_of_array(sums.counts[:, None], name + _COUNTS, F32))
    return write_gguf_file(path, entries, sources)
