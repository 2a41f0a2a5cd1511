"""Percentiles and their certainty: against NumPy, against the binomial, and by simulation."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.statistics import (
    FEWEST_FOR_P99,
    Interval,
    distribution,
    percentile,
    percentile_interval,
)
from tests.bench.streams import unhurried

finite = st.floats(0, 1e9, allow_nan=False)
samples = st.lists(finite, min_size=1, max_size=60)


@unhurried
@given(samples, st.floats(0, 1))
def test_linear_percentiles_are_numpys(values: list[float], quantile: float) -> None:
    expected = np.percentile(values, quantile * 100)
    assert percentile(sorted(values), quantile) == pytest.approx(expected, rel=1e-9, abs=1e-3)


@unhurried
@given(samples, st.sampled_from([0.0, 0.05, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_the_nearest_percentile_is_a_sample_that_enough_do_not_exceed(
    values: list[float], quantile: float
) -> None:
    ordered = sorted(values)
    got = percentile(ordered, quantile, "nearest")
    assert got in values
    assert sum(one <= got for one in ordered) >= quantile * len(ordered) - 1e-9
    below = [one for one in ordered if one < got]
    assert not below or len(below) < quantile * len(ordered) + 1e-9


def test_both_interpolations_of_four_samples() -> None:
    ordered = [10.0, 20.0, 30.0, 40.0]
    assert percentile(ordered, 0.5) == 25.0
    assert percentile(ordered, 0.5, "nearest") == 20.0
    assert percentile(ordered, 0.9) == pytest.approx(37.0)
    assert percentile(ordered, 0.9, "nearest") == 40.0
    assert percentile(list(range(1, 21)), 0.95, "nearest") == 19, "0.95 · 20 is 19 in full"


def test_a_distribution_says_what_it_rests_on() -> None:
    few = distribution([3.0, 1.0, 2.0], scale=2.0)
    assert few is not None
    assert (few.count, few.mean, few.least, few.p50, few.most) == (3, 4.0, 2.0, 4.0, 6.0)
    assert few.std == pytest.approx(math.sqrt(8 / 3))
    assert few.p99_marked and few.mean_interval == Interval(None, None)
    assert few.p99_interval.high is None, "no sample of three can bound a 99th percentile"
    enough = distribution(np.arange(FEWEST_FOR_P99, dtype=float))
    assert enough is not None and not enough.p99_marked
    assert enough.mean_interval.low is not None and enough.mean_interval.low < 499.5
    assert distribution([]) is None


def test_the_deviation_of_a_sample_divides_by_one_less() -> None:
    sample = distribution([1.0, 3.0], degrees=1)
    assert sample is not None and sample.std == pytest.approx(math.sqrt(2))
    alone = distribution([1.0], degrees=1)
    assert alone is not None and alone.std == 0.0


@unhurried
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=30))
def test_a_weight_counts_as_that_many_samples(pairs: list[tuple[int, int]]) -> None:
    values, weights = [float(v) for v, _ in pairs], [float(w) for _, w in pairs]
    weighted = distribution(values, weights, interpolation="nearest")
    repeated = distribution([float(v) for v, w in pairs for _ in range(w)], interpolation="nearest")
    if repeated is None or weighted is None:
        assert repeated is weighted
        return
    for name in ("count", "mean", "least", "p50", "p90", "p95", "p99", "most"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name)), name
    assert weighted.std == pytest.approx(repeated.std, abs=1e-6)


def test_weights_are_not_interpolated_between() -> None:
    with pytest.raises(ValueError, match="nearest"):
        distribution([1.0], [1.0])


def _coverage(count: int, quantile: float, low: int, high: int) -> float:
    """P(more than `low` and at most `high` of count samples lie below the percentile)."""
    return sum(
        math.comb(count, hits) * quantile**hits * (1 - quantile) ** (count - hits)
        for hits in range(low + 1, high + 1)
    )


@pytest.mark.parametrize(("count", "quantile"), [(10, 0.5), (25, 0.5), (100, 0.5), (500, 0.99)])
def test_an_interval_covers_the_true_percentile_as_often_as_it_says(
    count: int, quantile: float
) -> None:
    low, high = percentile_interval(list(range(count)), quantile, 0.95)
    assert low is not None and high is not None
    assert _coverage(count, quantile, int(low), int(high)) >= 0.95
    # Narrower on either side would miss too often.
    assert _coverage(count, quantile, -1, int(low) + 1) > 0.025
    assert _coverage(count, quantile, int(high) - 1, count) > 0.025


def test_bounds_that_no_sample_gives_are_absent() -> None:
    # 0.99^n <= 0.025 first holds for n = 368.
    assert percentile_interval(list(range(367)), 0.99).high is None
    assert percentile_interval(list(range(368)), 0.99).high == 367
    assert percentile_interval([1.0, 2.0], 0.5) == Interval(None, None)


def test_many_samples_take_the_approximation_and_agree_with_the_exact_ranks() -> None:
    exact = percentile_interval(list(range(2000)), 0.9)
    close = percentile_interval(list(range(2001)), 0.9)
    assert exact.low is not None and close.low is not None
    assert exact.high is not None and close.high is not None
    assert abs(exact.low - close.low) <= 2 and abs(exact.high - close.high) <= 2


def test_intervals_of_drawn_samples_hold_the_truth() -> None:
    source = random.Random(1)
    held = 0
    for _ in range(400):
        drawn = sorted(source.expovariate(1) for _ in range(200))
        low, high = percentile_interval(drawn, 0.9)
        held += low is not None and high is not None and low <= math.log(10) <= high
    assert 0.93 <= held / 400 <= 0.99
