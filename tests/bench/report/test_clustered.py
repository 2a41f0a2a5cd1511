"""Ratios of percentiles of gaps that come in streams."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.bench.report.clustered import PooledGaps, ratios_of_pooled_percentiles


def streams(seed: int, count: int, gaps: int, spread: float, scale: float = 1.0) -> PooledGaps:
    """Each stream has a pace of its own, which all of its gaps share."""
    draw = np.random.default_rng(seed)
    paces = draw.lognormal(0.0, spread, count)
    return PooledGaps([scale * pace * draw.uniform(0.9, 1.1, gaps) for pace in paces])


def test_a_percentile_is_of_all_gaps() -> None:
    got = PooledGaps([[1.0, 5.0], [], [3.0]])
    assert got.percentile(0.5) == 3.0 and got.percentile(1.0) == 5.0
    assert PooledGaps([]).percentile(0.5) is None


def test_a_resample_takes_requests_whole() -> None:
    got = PooledGaps([[1.0] * 10, [2.0] * 10])
    draw = np.random.default_rng(0)
    seen = {tuple(got.redrawn([0.0, 1.0], draw)) for _ in range(64)}
    assert seen == {(1.0, 1.0), (1.0, 2.0), (2.0, 2.0)}


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
    assert ratios_of_pooled_percentiles(PooledGaps([]), some, [0.5], source=source) == [None]
    zero = PooledGaps([[0.0, 0.0], [0.0, 1.0]])
    median, most = ratios_of_pooled_percentiles(some, zero, [0.5, 1.0], source=source)
    assert median is None
    assert most is not None and most.low is None, "a redrawn base may be 0"
    (alone,) = ratios_of_pooled_percentiles(some, PooledGaps([[2.0]]), [0.5], source=source)
    assert alone is not None and alone.low is None
    assert alone.ratio == pytest.approx((some.percentile(0.5) or 0) / 2)
