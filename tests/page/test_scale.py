"""Axes: values where they belong, ticks that can be read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.page.plots.scale import exact, linear, logarithmic, suited

VALUES = st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20)


@given(VALUES)
def test_ticks_lie_on_the_axis_and_are_round(values: list[float]) -> None:
    for scale in (linear(values, 0, 100), logarithmic(values, 0, 100)):
        ticks = scale.ticks(6)
        assert ticks == sorted(ticks) and 1 <= len(ticks) <= 8
        for tick in ticks:
            assert -0.2 <= scale.at(tick) <= 100.2
            if tick:
                digits = tick / 10 ** math.floor(math.log10(abs(tick)) + 1e-9)
                assert round(digits * 10, 6) == int(round(digits * 10, 6))


@given(VALUES)
def test_every_value_is_on_the_axis_and_in_order(values: list[float]) -> None:
    for scale in (linear(values, 10, 90), logarithmic(values, 10, 90), suited(values, 10, 90)):
        places = [scale.at(value) for value in sorted(values)]
        assert places == sorted(places) and places[0] >= 10 - 1e-6 and places[-1] <= 90 + 1e-6


def test_linear_places() -> None:
    scale = linear([3, 97], 0, 200)
    assert (scale.low, scale.high, scale.at(50)) == (0, 100, 100)
    assert scale.ticks(6) == [0, 20, 40, 60, 80, 100]
    assert linear([], 0, 1).ticks(6)[0] == 0
    assert linear([0.1, 0.3], 0, 1).ticks(4) == [0, 0.1, 0.2, 0.3]


def test_log_places() -> None:
    scale = logarithmic([3, 800], 0, 300)
    assert (scale.low, scale.high) == (2, 1000)
    assert scale.at(math.sqrt(2 * 1000)) == pytest.approx(150)
    assert logarithmic([0, -1], 0, 1).low == 1, "of nothing above 0"
    assert logarithmic([1e-3, 1e9], 0, 1).ticks(4)[:2] == pytest.approx([1e-3, 1e1])


def test_an_axis_is_logarithmic_only_where_values_spread() -> None:
    assert suited([1, 100], 0, 1).logarithmic
    assert not suited([1, 10], 0, 1).logarithmic
    assert not suited([0, 1000], 0, 1).logarithmic


def test_what_lies_outside_is_on_the_edge() -> None:
    assert exact(0, 10, 0, 100).at(11) == 100
    assert exact(5, 5, 0, 100).at(5) == 0
