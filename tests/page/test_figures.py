"""How numbers are written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.page.figures import DASH, compact, count, duration, figure, share


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (9.996, "10.0"),
        (99.96, "100"),
        (999.6, "1,000"),
        (12345.6, "12,346"),
        (-1.5, "-1.50"),
        (None, DASH),
        (math.inf, "∞"),
        (math.nan, DASH),
    ],
)
def test_three_digits_count(value: float | None, written: str) -> None:
    assert figure(value) == written


@given(st.floats(1e-6, 1e12))
def test_a_figure_is_near_what_it_stands_for(value: float) -> None:
    assert float(figure(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_shares_say_when_they_are_not_quite_all() -> None:
    assert [share(one) for one in (0, 0.001, 0.5, 0.994, 1, None)] == [
        "0 %",
        "0.10 %",
        "50 %",
        "99.4 %",
        "100 %",
        DASH,
    ]


def test_durations_have_the_unit_that_suits() -> None:
    written = [duration(one) for one in (0, 0.05, 20, 1500, 90_000, 600_000)]
    assert written == ["0", "50 µs", "20 ms", "1.5 s", "90 s", "10 min"]


def test_counts_and_ticks() -> None:
    assert [count(one) for one in (1234, 1234.5, None)] == ["1,234", "1,234.5", DASH]
    assert [compact(one) for one in (0, 0.5, 1500, 12_000, 3.4e6, 2.2e11)] == [
        "0",
        "0.5",
        "1,500",
        "12k",
        "3.4M",
        "220G",
    ]
