"""Bands of a simulation: batch means of a series whose error is known."""

from __future__ import annotations

import numpy as np

from headrace.plan.simulation.batch_means import band_of
from headrace.plan.simulation.finished import Column


def mean(values: Column) -> float:
    return float(values.mean())


def test_the_interval_holds_the_mean_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        low, high = band_of(draw.exponential(2.0, 400), mean)
        held += low <= 2.0 <= high
    assert 0.91 <= held / 400 <= 0.99


def test_what_depends_on_what_was_before_makes_it_wider() -> None:
    draw = np.random.default_rng(5)
    noise = draw.normal(0, 1, 20_000)
    series = np.empty_like(noise)
    at = 0.0
    for place, one in enumerate(noise):
        at = 0.95 * at + one
        series[place] = 50 + at
    alone = series.copy()
    draw.shuffle(alone)
    wide, narrow = band_of(series, mean), band_of(alone, mean)
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_of_few_it_is_from_the_least_to_the_greatest() -> None:
    assert band_of(np.array([3.0, 1.0, 2.0]), mean) == (1.0, 3.0)
    low, high = band_of(np.full(300, 7.0), mean)
    assert low == high == 7.0
