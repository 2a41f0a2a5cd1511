"""Operand rounding and sums: the arithmetic that docs/kernels.md asks of every backend.

Operands are rounded as the weight's codec demands. Everything after that is float64, so that
results carry the operands' rounding and practically none of the reference's own. One row is
computed at a time, by elementwise products and NumPy's pairwise sum over the last axis, whose
order depends on the length alone: BLAS would let it depend on shape, alignment and threads.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

BLOCK = 32
"""Values that share a scale, in Q8_0 weights and in the activations that meet them."""

# Products held at a time; bounds the temporaries to a few MiB whatever the matrix.
_SLICE_ELEMENTS = 1 << 18


def round_bf16(values: F32) -> F32:
    """The nearest bfloat16 of each value, ties to even, as float32."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


class QuantisedRow(NamedTuple):
    """A row of activations as Q8_0 weights see it: float32[blocks], int8[blocks, 32]."""

    scales: F32
    quants: npt.NDArray[np.int8]


def quantise_row(row: F32) -> QuantisedRow:
    """Blocks of 32 with d = amax / 127 and q = rint(x * (127 / amax)), all in float32.

    d and q are 0 where amax is 0, or so small (below 4e-37) that 127 / amax overflows.
    """
    blocks = row.reshape(-1, BLOCK)
    amax = np.abs(blocks).max(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(127) / amax
    usable = np.isfinite(inverse)
    inverse = np.where(usable, inverse, np.float32(0))
    scales = np.where(usable, amax / np.float32(127), np.float32(0))
    return QuantisedRow(scales, np.rint(blocks * inverse[:, None]).astype(np.int8))


def dense_product(matrix: F32, row: F32) -> F64:
    """matrix f32[out, in] times row f32[in]."""
    out = np.empty(matrix.shape[0])
    step = max(1, _SLICE_ELEMENTS // max(1, matrix.shape[1]))
    for start in range(0, len(out), step):
        products = np.multiply(matrix[start : start + step], row, dtype=np.float64)
        out[start : start + step] = np.add.reduce(products, axis=1)
    return out


class Q8Matrix(NamedTuple):
    """Q8_0 weights: float32[out, blocks] (from F16, exact) and int8[out, blocks, 32]."""

    scales: F32
    quants: npt.NDArray[np.int8]


def q8_product(matrix: Q8Matrix, row: F32) -> F64:
    """A Q8_0 matrix times the quantised row: an exact integer sum per block, scaled, then added."""
    activations = quantise_row(row)
    quants = activations.quants.astype(np.int32)
    out = np.empty(len(matrix.scales))
    step = max(1, _SLICE_ELEMENTS // max(1, row.size))
    for start in range(0, len(out), step):
        part = slice(start, start + step)
        sums = (matrix.quants[part] * quants).sum(axis=2, dtype=np.int64)
        scales = np.multiply(matrix.scales[part], activations.scales, dtype=np.float64)
        out[part] = np.add.reduce(scales * sums, axis=1)
    return out


def norm_row(row: F32, weight: F32, eps: float) -> F32:
    """row * weight / sqrt(mean(row²) + eps), rounded once."""
    wide = row.astype(np.float64)
    mean = np.add.reduce(wide * wide) / row.size
    normed: F32 = (wide * weight / np.sqrt(mean + eps)).astype(np.float32)
    return normed
