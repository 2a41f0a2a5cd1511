"""Nonnegative least squares: by hand, by its conditions, and with disturbed rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plan.calibration.nnls import nnls, robust_nnls


def test_what_is_not_below_zero_anyway_is_ordinary_least_squares() -> None:
    matrix = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    target = np.array([1.0, 3.0, 4.9])
    assert nnls(matrix, target) == pytest.approx(np.linalg.lstsq(matrix, target, rcond=None)[0])


def test_what_would_be_below_zero_is_zero() -> None:
    matrix = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    # Falling: the best line has a slope of -1; without slope the mean is best.
    assert nnls(matrix, np.array([3.0, 2.0, 1.0])) == pytest.approx([2.0, 0.0])


def test_columns_of_any_size() -> None:
    matrix = np.array([[1.0, 1e9], [1.0, 3e9], [1.0, 2e9]]) * 1e-6
    assert nnls(matrix, matrix @ [5.0, 2e-9]) == pytest.approx([5.0, 2e-9])


def test_an_empty_column_gets_nothing() -> None:
    assert nnls(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([1.0, 2.0])) == pytest.approx([0, 1])


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 12))
def test_the_conditions_of_the_least(seed: int, columns: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    matrix, target = draw.normal(size=(rows, columns)), draw.normal(size=rows)
    x = nnls(matrix, target)
    gradient = matrix.T @ (target - matrix @ x)
    assert (x >= 0).all()
    assert (gradient <= 1e-6).all(), "more of any column would be no better"
    assert gradient[x > 0] == pytest.approx(0, abs=1e-6)


def test_a_disturbed_row_bends_little() -> None:
    matrix = np.array([[1.0, n] for n in (1, 2, 4, 8, 16, 32, 64)], float)
    target = matrix @ [2.0, 0.5]
    target[3] /= 3  # as where a prompt was found in the cache
    assert robust_nnls(matrix, target, tolerance=0.05) == pytest.approx([2.0, 0.5], rel=0.05)
    plain = nnls(matrix / target[:, None], np.ones(7))
    assert abs(plain[1] - 0.5) > 0.05


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(ValueError, match="do not go together"):
        nnls(np.ones((2, 2)), np.ones(3))
    with pytest.raises(ValueError, match="finite"):
        nnls(np.array([[np.nan]]), np.ones(1))
    with pytest.raises(ValueError, match="above 0"):
        robust_nnls(np.ones((2, 1)), np.array([1.0, 0.0]), tolerance=0.1)
