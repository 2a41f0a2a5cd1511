"""Least squares with coefficients that are not below zero.

C. L. Lawson, R. J. Hanson: Solving Least Squares Problems (1974), chapter 23. The sets are of a few
columns, so each step solves its least squares anew.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_HUBER_STEPS = 25


def nnls(matrix: Array, target: Array) -> Array:
    """The x >= 0 with the least |matrix · x − target|, of shapes (m, n), (m,) and (n,).

    Raises ValueError for shapes that do not go together, and for what is not finite.
    """
    if matrix.ndim != 2 or target.shape != (matrix.shape[0],):
        raise ValueError(f"shapes {matrix.shape} and {target.shape} do not go together")
    if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
        raise ValueError("values to fit must be finite")
    # Columns as long as each other, so that one limit serves all of them.
    lengths = np.linalg.norm(matrix, axis=0)
    lengths[lengths == 0] = 1.0
    scaled = matrix / lengths
    count = matrix.shape[1]
    x = np.zeros(count)
    used = np.zeros(count, dtype=bool)
    limit = 1e-10 * max(1.0, float(np.linalg.norm(target)))
    for _ in range(10 * count + 10):  # each turn leaves a smaller rest; rounding may end that
        gradient = scaled.T @ (target - scaled @ x)
        gradient[used] = -np.inf
        if used.all() or gradient.max() <= limit:
            break
        used[int(gradient.argmax())] = True
        while True:
            solved = np.zeros(count)
            solved[used] = np.linalg.lstsq(scaled[:, used], target, rcond=None)[0]
            below = used & (solved <= 0)
            if not below.any():
                x = solved
                break
            # As far towards it as nothing is below zero, and what gets there leaves.
            part = float((x[below] / (x[below] - solved[below])).min())
            x = x + part * (solved - x)
            used &= x > 1e-14
            x[~used] = 0.0
    found: Array = x / lengths
    return found


def robust_nnls(matrix: Array, target: Array, *, tolerance: float) -> Array:
    """The same on errors as shares of `target`, those above `tolerance` with less weight (Huber).

    target: above 0. A row counts by its error as a share, so that short steps are not drowned by
    long ones, and a few that were disturbed do not bend the rest.
    """
    if not (target > 0).all():
        raise ValueError("shares are taken of what is above 0")
    relative = matrix / target[:, None]
    ones = np.ones(len(target))
    x = nnls(relative, ones)
    for _ in range(_HUBER_STEPS):
        error = np.abs(relative @ x - 1)
        weight = np.sqrt(np.minimum(1.0, tolerance / np.maximum(error, 1e-12)))
        following = nnls(relative * weight[:, None], ones * weight)
        if np.allclose(following, x, rtol=1e-6, atol=0):
            return following
        x = following
    return x
