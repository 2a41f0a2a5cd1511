"""Vectors of length 1, and which of many is nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
_FLOAT_BYTES = 4


def normalised(vector: bytes) -> bytes | None:
    """At length 1; None for what is no vector, or has no direction."""
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
    """Cosine of each row with the vector, all of length 1."""
    found: NDArray[np.float32] = matrix @ row_of(vector)
    return found


def nearest_row(matrix: Matrix, vector: bytes) -> tuple[int, float]:
    """Row and similarity, at most 1; the matrix has at least one row."""
    each = similarities(matrix, vector)
    at: Any = int(np.argmax(each))
    return at, min(1.0, float(each[at]))
