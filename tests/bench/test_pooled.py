"""Samples in clusters: worked out by hand, and by simulation."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from headrace.bench.pooled import PooledSamples, one_each, pooled_distribution, resamples_of
from headrace.bench.statistics import distribution


def pooled(by_request: Sequence[Sequence[float]]) -> PooledSamples:
    values = [value for one in by_request for value in one]
    owners = np.repeat(np.arange(len(by_request)), [len(one) for one in by_request])
    return PooledSamples(np.asarray(values, dtype=np.float64), owners, len(by_request))


def test_percentiles_and_means_by_hand() -> None:
    weighted = PooledSamples(
        np.array([30.0, 10.0, 20.0]), np.arange(3), 3, np.array([2.0, 10.0, 8.0]), "nearest"
    )
    # Of a weight of 20: 10 below or at 10, 18 at 20.
    assert weighted.percentiles((0.5, 0.51, 0.9, 0.91)) == [10, 20, 20, 30]
    assert weighted.mean == pytest.approx((2 * 30 + 10 * 10 + 8 * 20) / 20)
    assert one_each([1.0, 2.0, 4.0]).percentile(0.75) == 3
    assert one_each([]).percentile(0.5) is None and one_each([]).mean is None


def test_the_error_of_a_mean_is_that_of_its_requests() -> None:
    """Two requests of two equal gaps each tell as much as two samples do."""
    twins = pooled([[1.0, 1.0], [3.0, 3.0]])
    assert twins.mean_error == pytest.approx(math.sqrt(2) / math.sqrt(2))
    assert twins.mean_error == pytest.approx(one_each([1.0, 3.0]).mean_error)
    assert one_each([1.0]).mean_error is None


@pytest.mark.long
def test_intervals_of_gaps_hold_the_truth_and_are_wider_than_those_of_single_gaps() -> None:
    held = 0
    for seed in range(60):
        draw = np.random.default_rng(seed)
        paces = draw.lognormal(0.0, 0.4, 60)
        of = pooled([pace * draw.uniform(0.9, 1.1, 20) for pace in paces])
        got = pooled_distribution(of, source=random.Random(seed))
        alone = distribution(of.ordered)
        assert got is not None and alone is not None
        low, high = got.p50_interval
        assert low is not None and high is not None
        held += low <= 1.0 <= high
        one_low, one_high = alone.p50_interval
        assert one_low is not None and one_high is not None
        assert high - low > 1.5 * (one_high - one_low)
        assert (got.p50, got.count, got.p99_marked) == (alone.p50, 1200, True)
    assert held >= 52


def test_few_requests_have_no_interval_and_many_samples_fewer_draws() -> None:
    got = pooled_distribution(pooled([[1.0, 2.0]] * 29), source=random.Random(0))
    assert got is not None and got.p50_interval == got.p99_interval == (None, None)
    assert pooled_distribution(pooled([]), source=random.Random(0)) is None
    assert [resamples_of(size, 1000, 10**6) for size in (0, 2000, 10**6)] == [1000, 500, 200]
