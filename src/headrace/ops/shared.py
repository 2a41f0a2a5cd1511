"""What backends over NumPy arrays prepare alike: vectors, rotation tables, stacked biases.

None of it is arithmetic that kernels could differ in: it runs once at load, in NumPy. Backends
whose arrays are others convert these results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.ops.interface import RopeTable
from headrace.weights.tensor import Tensor


def f32_vector(tensor: Tensor, offset: float = 0.0) -> npt.NDArray[np.float32]:
    """A 1-d tensor as f32[n], with `offset` added; ValueError for any other shape."""
    if len(tensor.shape) != 1:
        raise ValueError(f"{tensor.name}: shape {tensor.shape} is not that of a vector")
    return tensor.to_f32() + np.float32(offset)


def f32_rope_table(
    inv_freq: npt.NDArray[np.float64], positions: int, attention_factor: float = 1.0
) -> RopeTable:
    """cos and sin for positions [0, positions): angles in float64, results rounded once to f32.

    Raises ValueError for fewer than one position.
    """
    if positions < 1:
        raise ValueError(f"positions of a rope table must be at least 1, not {positions}")
    angles = np.arange(positions, dtype=np.float64)[:, None] * inv_freq
    return RopeTable(
        (np.cos(angles) * attention_factor).astype(np.float32),
        (np.sin(angles) * attention_factor).astype(np.float32),
        2 * len(inv_freq),
    )


def stacked_bias(
    parts: Sequence[Tensor], bias: Sequence[Tensor | None] | None
) -> npt.NDArray[np.float32] | None:
    """All biases one after another, zeros where a part has none; None where no part has one.

    Raises ValueError where their number or one's length is not that of `parts`.
    """
    if bias is None:
        return None
    if len(bias) != len(parts):
        names = ", ".join(part.name for part in parts)
        raise ValueError(f"{len(bias)} biases for {len(parts)} matrices: {names}")
    if all(vector is None for vector in bias):
        return None
    vectors = []
    for part, vector in zip(parts, bias, strict=True):
        if vector is not None and vector.shape != part.shape[:1]:
            raise ValueError(f"{vector.name}: shape {vector.shape} does not fit {part.shape[:1]}")
        vectors.append(np.zeros(part.shape[0], np.float32) if vector is None else vector.to_f32())
    return np.concatenate(vectors)
