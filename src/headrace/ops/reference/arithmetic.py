"""Operand rounding and sums: the arithmetic that docs/kernels.md asks of every backend.

Operands are rounded as the weight's codec demands. Everything after that is float64, so that
results carry the operands' rounding and practically none of the reference's own. One row is
computed at a time, by elementwise products and NumPy's pairwise sum over the last axis, whose
order depends on the length alone: BLAS would let it depend on shape, alignment and threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from headrace.ops.operands import Activation, Norm
from headrace.ops.shared import BLOCK, is_centred

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

# Products held at a time; bounds the temporaries to a few MiB whatever the matrix.
_SLICE_ELEMENTS = 1 << 18


def round_bf16(values: F32) -> F32:
    """The nearest bfloat16 of each value, ties to even, as float32."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


class QuantisedRow(NamedTuple):
    """A row of activations as quantised weights see it: float32[blocks], int8[blocks, size]."""

    scales: F32
    quants: npt.NDArray[np.int8]


def quantise_row(row: F32, size: int = BLOCK) -> QuantisedRow:
    """Blocks of `size` with d = amax / 127 and q = rint(x * (127 / amax)), all in float32.

    d and q are 0 where amax is 0, or so small (below 4e-37) that 127 / amax overflows.
    """
    blocks = row.reshape(-1, max(1, size))
    amax = np.abs(blocks).max(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(127) / amax
    usable = np.isfinite(inverse)
    inverse = np.where(usable, inverse, np.float32(0))
    scales = np.where(usable, amax / np.float32(127), np.float32(0))
    return QuantisedRow(scales, np.rint(blocks * inverse[:, None]).astype(np.int8))


def dense_product(matrix: F32, row: F32 | F64) -> F64:
    """matrix f32[out, in] times row [in]."""
    out = np.empty(matrix.shape[0])
    step = max(1, _SLICE_ELEMENTS // max(1, matrix.shape[1]))
    for start in range(0, len(out), step):
        products = np.multiply(matrix[start : start + step], row, dtype=np.float64)
        out[start : start + step] = np.add.reduce(products, axis=1)
    return out


def round_quantised(row: F32, size: int) -> F64:
    """What quantised weights see of a row: d * q of its blocks of `size`, not rounded again."""
    scales, quants = quantise_row(row, size)
    return np.multiply(scales[:, None], quants, dtype=np.float64).reshape(-1)


def norm_row(row: F32, norm: Norm) -> F64:
    """One row normed, in float64."""
    wide = row.astype(np.float64)
    if is_centred(norm):
        wide = wide - np.add.reduce(wide) / row.size
    mean = np.add.reduce(wide * wide) / row.size
    normed: F64 = wide * norm.weight / np.sqrt(mean + norm.eps)
    return normed if norm.bias is None else normed + norm.bias


def activate(x: F64, kind: Activation) -> F64:
    """The activation of each value; ValueError for one that is unknown."""
    if kind == "relu":
        return np.where(x < 0, 0.0, x)
    if kind == "relu2":
        return np.square(np.where(x < 0, 0.0, x))
    if kind == "silu":
        with np.errstate(over="ignore"):  # exp(-x) = inf gives -0, which is the limit
            share = 1 / (1 + np.exp(-x))
    elif kind == "gelu":
        share = 0.5 * (1 + _erf(x / math.sqrt(2)))
    elif kind == "gelu_tanh":
        share = 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    else:
        raise ValueError(
            f"activation {kind!r} is unknown; supported: silu, gelu, gelu_tanh, relu, relu2"
        )
    return np.multiply(x, share)


def gate_by(gate: F64, up: F64, kind: Activation, limit: float = 0.0) -> F64:
    """act(gate) * up of each pair, both cut at the limit where there is one.

    ValueError for a kind that is unknown, and for a limit that is negative or not finite.
    """
    if not 0 <= limit < math.inf:
        raise ValueError(f"limit {limit} is not in [0, inf)")
    if kind == "swiglu_clamped":
        if limit:
            raise ValueError("limit: swiglu_clamped has its own")
        gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
        with np.errstate(over="ignore"):
            gated: F64 = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
        return gated
    gate = activate(gate, kind)
    if limit:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate * up


_erf: Callable[[F64], F64] = np.vectorize(math.erf, otypes=[np.float64])
