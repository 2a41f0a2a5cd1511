"""A product of each head's own: the backend's `linear` of its matrix and its columns."""

from __future__ import annotations

import numpy as np

from headrace.ops.interface import Ops
from headrace.ops.operands import HeadWeight, LinearWeight
from headrace.ops.reference.arithmetic import F32
from headrace.ops.reference.checks import check_rows


def run(ops: Ops, x: F32, weight: HeadWeight, kept: int, beside: F32 | None) -> F32:
    """Columns of each head, the first `kept` as they are and the others times its matrix."""
    matrices: tuple[LinearWeight, ...] = weight.packed
    if kept < 0:
        raise ValueError(f"kept {kept} is negative; it is a number of columns")
    width = kept + weight.in_features
    check_rows("x", x, weight.num_heads * width)
    parts = []
    for head, matrix in enumerate(matrices):
        columns = x[:, head * width : (head + 1) * width]
        parts += [columns[:, :kept], ops.linear(np.ascontiguousarray(columns[:, kept:]), matrix)]
    if beside is not None:
        if beside.dtype != np.float32 or beside.ndim != 2 or len(beside) != len(x):
            raise ValueError(
                f"beside must be float32[{len(x)}, columns], not {beside.dtype}{list(beside.shape)}"
            )
        parts.append(beside)
    return np.concatenate(parts, axis=1)
