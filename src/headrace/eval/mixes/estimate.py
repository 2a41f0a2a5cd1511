"""Divergences of matrices in kinds that were not measured, from those that were.

log KL(matrix, kind) = a(matrix) + b(kind), by least squares over what was measured: a matrix is
more or less sensitive, a kind rounds more or less, and for small errors the divergence grows with
their squares, so that both factors multiply. What was measured stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

# Below what is measured reliably; a divergence of 0 has no logarithm.
_LEAST_KL = 1e-9
# Of the two sums' ambiguity, and of kinds and matrices without a measurement: they become the mean.
_SHRINK = 1e-6


def estimated(
    measured: Mapping[str, Mapping[str, float]], matrices: Sequence[str], kinds: Sequence[str]
) -> dict[str, dict[str, float]]:
    """A divergence for each matrix and kind. measured: by matrix, then by kind."""
    rows = {name: at for at, name in enumerate(matrices)}
    columns = {name: len(rows) + at for at, name in enumerate(kinds)}
    pairs = [(name, kind) for name, by_kind in measured.items() for kind in by_kind]
    size = len(rows) + len(columns)
    design = np.zeros((len(pairs), size))
    for at, (name, kind) in enumerate(pairs):
        design[at, [rows[name], columns[kind]]] = 1
    logs = np.log([max(_LEAST_KL, measured[name][kind]) for name, kind in pairs] or [0.0])
    mean = float(logs.mean())
    if pairs:
        normal = design.T @ design + _SHRINK * np.eye(size)
        found = np.linalg.solve(normal, design.T @ (logs - mean))
    else:
        found = np.zeros(size)
    return {
        name: {
            kind: measured.get(name, {}).get(
                kind, float(np.exp(mean + found[rows[name]] + found[columns[kind]]))
            )
            for kind in kinds
        }
        for name in matrices
    }
