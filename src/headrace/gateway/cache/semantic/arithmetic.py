"""Vectors of length 1, and the nearest of many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
_FLOAT_BYTES = 4


def normalised(vector: bytes) -> bytes | None:
    """The vector scaled to length 1; None for bytes that are not a vector with a direction."""
    if not vector or len(vector) % _FLOAT_BYTES:
        return None
    values = np.frombuffer(vector, dtype="<f4").astype(np.float64)
    length = float(np.linalg.norm(values))
    if not np.isfinite(length) or length == 0.0:
        return None
    return (values / length).astype("<f4").tobytes()


def row_of(vector: bytes) -> Matrix:
    """The vector as an array, without a copy."""
    return np.frombuffer(vector, dtype="<f4")


def similarities(matrix: Matrix, vector: bytes) -> NDArray[np.float32]:
    """The cosine of each row with the vector, all of length 1."""
    found: NDArray[np.float32] = matrix @ row_of(vector)
    return found


def nearest_row(matrix: Matrix, vector: bytes) -> tuple[int, float]:
    """The nearest row and its similarity, at most 1; the matrix has at least one row."""
    cosines = similarities(matrix, vector)
    at: Any = int(np.argmax(cosines))
    return at, min(1.0, float(cosines[at]))
