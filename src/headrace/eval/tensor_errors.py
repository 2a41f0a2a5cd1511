"""How far the weights of a file are from those of its source, tensor by tensor.

Relative RMSE = sqrt(sum w (y - x)^2 / sum w x^2) over all values of a tensor, x of the source, y of
the file as they decode; w is the importance of the column (the mean square of what enters it), 1
where none is given. It is the quantity that a quantiser keeps small. Rows pass through memory some
MiB at a time.

Sums of several tensors are not added: importance is in units of each matrix's own inputs, and some
tensors have none. That of a file is sqrt(sum n r^2 / sum n), r the relative RMSE of a tensor of n
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, shown
from headrace.weights.quantize.importance import ImportanceFile
from headrace.weights.quantize.make import contents_of
from headrace.weights.tensors.source import TensorSource

Floats = npt.NDArray[np.float32]


class TensorError(msgspec.Struct, frozen=True, kw_only=True):
    """The error of one tensor."""

    name: str
    """As in a GGUF file."""
    base_kind: str
    kind: str
    values: int
    bits_per_weight: float
    relative_rmse: float
    largest: float
    """The largest difference of one value."""
    weighted: bool
    """Whether importance weighs it."""


class TensorErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of all tensors of a file."""

    tensors: tuple[TensorError, ...]
    relative_rmse: float
    """Root of the mean square of those of the tensors, each weighed by how many values it has."""
    exact: int
    """Tensors that decode to the same values."""
    extra: tuple[str, ...]
    """Tensors of the file that the source does not have."""


def tensor_errors(
    path: Path,
    base: Path,
    importance: ImportanceFile | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TensorErrors:
    """Of the model at `path` against the one at `base`: GGUF files or folders of Hugging Face's.

    progress: tensors done and in all. Raises CheckpointError where a tensor of the base is missing
    in the file, has another shape, or the importance is of another model; ConfigError and
    UnsupportedModelError as the readers do.
    """
    sources = {source.name: source for source in contents_of(base).sources}
    made = {source.name: source for source in contents_of(path).sources}
    _check_same_model(path, made, base, sources)
    results = []
    total = 0.0
    for number, (name, source) in enumerate(sources.items(), 1):
        weights = _weights(importance, source)
        error, square, largest = _compared(source, made[name], weights)
        values, relative = math.prod(source.shape), _ratio(error, square)
        total += values * relative**2
        results.append(
            TensorError(
                name=name,
                base_kind=source.codec.name,
                kind=made[name].codec.name,
                values=values,
                bits_per_weight=8 * made[name].nbytes / max(1, values),
                relative_rmse=relative,
                largest=largest,
                weighted=weights is not None,
            )
        )
        progress(number, len(sources))
    return TensorErrors(
        tensors=tuple(results),
        relative_rmse=_ratio(total, sum(result.values for result in results)),
        exact=sum(result.largest == 0 for result in results),
        extra=tuple(sorted(made.keys() - sources.keys())),
    )


def _check_same_model(
    path: Path, made: dict[str, TensorSource], base: Path, sources: dict[str, TensorSource]
) -> None:
    for name, source in sources.items():
        if name not in made:
            raise CheckpointError(
                f"{path}: tensor {shown(name)} is missing, which {base} has; "
                "compare files of the same model"
            )
        if made[name].shape != source.shape:
            raise CheckpointError(
                f"{path}: tensor {shown(name)} has shape {made[name].shape}, in {base} "
                f"{source.shape}; compare files of the same model"
            )


def _weights(importance: ImportanceFile | None, source: TensorSource) -> Floats | None:
    """float32[matrices, columns], or None where nothing was measured."""
    sums = None if importance is None else importance.sums.get(source.name)
    if sums is None:
        return None
    weights = sums.importance()
    matrices = source.shape[0] if len(source.shape) > 2 else 1
    if weights.shape != (matrices, source.shape[-1]):
        raise CheckpointError(
            f"tensor {shown(source.name)} has {matrices} matrices of {source.shape[-1]} columns, "
            f"its importance {weights.shape[0]} of {weights.shape[1]}: it was measured on another "
            "model; measure it on this one with headrace imatrix"
        )
    return weights


def _compared(
    source: TensorSource, made: TensorSource, weights: Floats | None
) -> tuple[float, float, float]:
    """Weighted sums of squared errors and of squares, and the largest error."""
    error = square = largest = 0.0
    row = 0
    rows_each = max(1, math.prod(source.shape[:-1]) // (1 if weights is None else len(weights)))
    for x, y in _together(_rows(source), _rows(made)):
        if not np.isfinite(x).all() or not np.isfinite(y).all():
            raise CheckpointError(
                f"tensor {shown(source.name)}: rows {row} to {row + len(x) - 1} hold NaN or "
                "infinity in one of the files; the model is damaged"
            )
        apart = y.astype(np.float64) - x
        squares = x.astype(np.float64) ** 2
        largest = max(largest, float(np.abs(apart).max(initial=0.0)))
        apart *= apart
        if weights is not None:
            own = weights[(row + np.arange(len(x))) // rows_each]
            apart *= own
            squares *= own
        error += float(apart.sum())
        square += float(squares.sum())
        row += len(x)
    return error, square, largest


def _rows(source: TensorSource) -> Iterator[Floats]:
    """Values f32[n, columns], some rows at a time."""
    row_bytes = source.codec.row_bytes(source.shape[-1] if source.shape else 1)
    for piece in source.pieces():
        yield source.codec.decode(piece.reshape(-1, row_bytes))


def _together(first: Iterator[Floats], second: Iterator[Floats]) -> Iterator[Sequence[Floats]]:
    """The rows of both, equally many at a time, however each is cut."""
    x = y = np.empty((0, 0), np.float32)
    while True:
        if not len(x):
            x = next(first, x)
        if not len(y):
            y = next(second, y)
        count = min(len(x), len(y))
        if not count:
            return
        yield x[:count], y[:count]
        x, y = x[count:], y[count:]


def _ratio(error: float, square: float) -> float:
    """0 for what is exact, also where all values are 0; infinite where only those are."""
    if not error:
        return 0.0
    return math.sqrt(error / square) if square else math.inf
