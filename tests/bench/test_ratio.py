"""Ratios between runs: against a bootstrap that draws, and by simulation."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.bench.ratio import ratio_of_means, ratio_of_percentiles


def test_a_ratio_of_medians_and_its_interval() -> None:
    source = random.Random(2)
    base = [source.gauss(100, 10) for _ in range(400)]
    ours = [source.gauss(80, 10) for _ in range(400)]
    got = ratio_of_percentiles(ours, base, source=random.Random(3))
    assert got is not None and got.low is not None and got.high is not None
    assert got.low < 0.8 < got.high and got.high - got.low < 0.06
    assert got.differs
    again = ratio_of_percentiles(ours, base, source=random.Random(3))
    assert again == got, "the same source gives the same interval"
    same = ratio_of_percentiles(base[:200], base[200:], source=random.Random(3))
    assert same is not None and not same.differs


def test_the_bootstrap_without_drawing_is_the_bootstrap() -> None:
    values = [float(v) ** 1.5 for v in range(40)]
    source = random.Random(4)
    drawn = sorted(
        float(np.percentile(source.choices(values, k=len(values)), 75)) for _ in range(4000)
    )
    got = ratio_of_percentiles(values, [1.0, 1.0], 0.75, source=random.Random(5), resamples=4000)
    assert got is not None and got.low is not None and got.high is not None
    assert got.low == pytest.approx(drawn[100], rel=0.05)
    assert got.high == pytest.approx(drawn[3899], rel=0.05)


def test_a_nearest_percentile_is_compared_as_one() -> None:
    values = [1.0, 2.0, 3.0, 40.0]
    got = ratio_of_percentiles(
        values, [1.0, 1.0], 0.75, source=random.Random(5), interpolation="nearest"
    )
    assert got is not None and got.ratio == 3.0
    drawn = sorted(sorted(random.Random(at).choices(values, k=4))[2] for at in range(4000))
    assert (got.low, got.high) == (drawn[100], drawn[3899])


def test_ratios_that_cannot_be_said() -> None:
    source = random.Random(6)
    assert ratio_of_percentiles([], [1.0], source=source) is None
    assert ratio_of_percentiles([1.0], [0.0], source=source) is None
    alone = ratio_of_percentiles([2.0], [1.0], source=source)
    assert alone == (2.0, None, None) and not alone.differs


def test_a_ratio_of_means_holds_the_truth_as_often_as_it_says() -> None:
    draw = np.random.default_rng(7)
    held = 0
    for _ in range(500):
        got = ratio_of_means(draw.gamma(4, 3, 60), draw.gamma(4, 2, 80))
        assert got is not None and got.low is not None and got.high is not None
        held += got.low <= 1.5 <= got.high
    assert 0.92 <= held / 500 <= 0.98


def test_ratios_of_means_that_cannot_be_said() -> None:
    assert ratio_of_means([], [1.0]) is None
    assert ratio_of_means([1.0], [0.0]) is None
    few = ratio_of_means([3.0] * 29, [2.0] * 40)
    assert few == (1.5, None, None)
    even = ratio_of_means([3.0] * 30, [2.0] * 30)
    assert even == pytest.approx((1.5, 1.5, 1.5)) and even is not None and even.differs
