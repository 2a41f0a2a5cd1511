"""Ratios of percentiles of gaps that come in streams."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.bench.pooled import PooledSamples
from headrace.bench.report.clustered import (
    ratio_of_pooled_means,
    ratios_of_pooled_percentiles,
)
from tests.bench.test_pooled import pooled


def streams(seed: int, count: int, gaps: int, spread: float, scale: float = 1.0) -> PooledSamples:
    """Each stream has a pace of its own, which all of its gaps share."""
    draw = np.random.default_rng(seed)
    paces = draw.lognormal(0.0, spread, count)
    return pooled([scale * pace * draw.uniform(0.9, 1.1, gaps) for pace in paces])


def test_a_percentile_is_of_all_gaps() -> None:
    got = pooled([[1.0, 5.0], [], [3.0]])
    assert got.percentile(0.5) == 3.0 and got.percentile(1.0) == 5.0
    assert pooled([]).percentile(0.5) is None


def test_a_resample_takes_requests_whole() -> None:
    got = pooled([[1.0] * 10, [2.0] * 10])
    draw = np.random.default_rng(0)
    seen = {tuple(got.redrawn([0.0, 1.0], draw)) for _ in range(64)}
    assert seen == {(1.0, 1.0), (1.0, 2.0), (2.0, 2.0)}


@pytest.mark.long
def test_intervals_hold_the_true_ratio_as_often_as_they_say() -> None:
    """Of gaps taken one by one they would be some six times too narrow here."""
    held = 0
    for seed in range(60):
        ours = streams(2 * seed, 40, 30, 0.4, scale=1.5)
        base = streams(2 * seed + 1, 40, 30, 0.4)
        (ratio,) = ratios_of_pooled_percentiles(
            ours, base, [0.5], source=random.Random(seed), resamples=200
        )
        assert ratio is not None and ratio.low is not None and ratio.high is not None
        held += ratio.low <= 1.5 <= ratio.high
    assert held >= 51


def test_nothing_is_said_of_too_little() -> None:
    some = streams(1, 5, 4, 0.1)
    source = random.Random(0)
    assert ratios_of_pooled_percentiles(pooled([]), some, [0.5], source=source) == [None]
    zero = pooled([[0.0, 0.0], [0.0, 1.0]])
    median, most = ratios_of_pooled_percentiles(some, zero, [0.5, 1.0], source=source)
    assert median is None
    assert most is not None and most.low is None, "a redrawn base may be 0"
    (alone,) = ratios_of_pooled_percentiles(some, pooled([[2.0]]), [0.5], source=source)
    assert alone is not None and alone.low is None
    assert alone.ratio == pytest.approx((some.percentile(0.5) or 0) / 2)


def test_a_weight_draws_no_request_more_often() -> None:
    """Of ten requests one has all of the weight: half of the time it is drawn, or not."""
    heavy = PooledSamples(
        np.arange(1.0, 11.0), np.arange(10), 10, np.array([1.0] * 9 + [91.0]), "nearest"
    )
    (ratio,) = ratios_of_pooled_percentiles(
        heavy, pooled([[1.0]] * 10), [0.5], source=random.Random(0), resamples=400
    )
    assert ratio is not None and ratio.ratio == 10.0
    assert ratio.low is not None and ratio.low < 8, "without it the median is of the others"


def test_means_of_clusters() -> None:
    ours, base = streams(1, 60, 30, 0.4, scale=1.5), streams(2, 60, 30, 0.4)
    got = ratio_of_pooled_means(ours, base)
    assert got is not None and got.low is not None and got.high is not None
    assert got.low < 1.5 < got.high and got.high - got.low > 0.2, "60 samples, not 1,800"
    assert ratio_of_pooled_means(pooled([]), base) is None
    few = ratio_of_pooled_means(streams(1, 5, 4, 0.1), base)
    assert few is not None and few.low is None
