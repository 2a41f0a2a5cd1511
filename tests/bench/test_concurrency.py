"""Requests in flight: sweep line against counting, and the window between filling and draining."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.concurrency import (
    Flight,
    Window,
    flights,
    mean_in_flight,
    peak_in_flight,
    steady_window,
    whole_window,
)
from headrace.bench.record import Failure
from tests.bench.streams import MS, steady, stream, unhurried

drawn = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 20)).map(lambda p: Flight(p[0], p[0] + p[1])),
    min_size=1,
    max_size=12,
)


@unhurried
@given(drawn)
def test_mean_and_peak_are_those_of_counting_every_instant(flown: list[Flight]) -> None:
    whole = whole_window(flown)
    assert whole is not None
    counts = [
        sum(one.start_ns <= at < one.end_ns for one in flown)
        for at in range(whole.start_ns, whole.end_ns)
    ]
    assert peak_in_flight(flown) == max(counts, default=0)
    mean = mean_in_flight(flown, whole)
    assert (mean is None) == (not counts)
    if mean is not None:
        assert mean == pytest.approx(sum(counts) / len(counts))


@unhurried
@given(drawn)
def test_the_steady_window_lies_within_the_run(flown: list[Flight]) -> None:
    window, whole = steady_window(flown), whole_window(flown)
    assert whole is not None
    if window is not None:
        assert whole.start_ns <= window.start_ns < window.end_ns <= whole.end_ns


def test_two_slots_of_a_closed_loop() -> None:
    flown = [Flight(0, 10), Flight(0, 20), Flight(10, 30), Flight(20, 40)]
    assert whole_window(flown) == Window(0, 40)
    assert steady_window(flown) == Window(10, 20)
    assert mean_in_flight(flown, Window(10, 20)) == 2
    assert mean_in_flight(flown, Window(0, 40)) == 1.75
    assert peak_in_flight(flown) == 2, "one that ends makes room for the next"


def test_all_at_once_is_never_steady_and_nothing_has_no_window() -> None:
    assert steady_window([Flight(0, 10), Flight(0, 20)]) is None
    assert whole_window([]) is None and steady_window([]) is None and peak_in_flight([]) == 0
    assert Window(0, 2_000_000_000).seconds == 2


def test_failed_requests_fly_too_and_unsent_ones_do_not() -> None:
    failed = stream(end_ms=5, failure=Failure("timeout", "5 ms passed"))
    unsent = stream(sent_ms=None, end_ms=9, failure=Failure("cancelled", "the run ended"))
    flown = flights([failed, unsent, steady(2, 1, 1)])
    assert flown == [Flight(0, 5 * MS, completed=False), Flight(0, 2 * MS)]


def test_of_many_users_some_are_always_between_two_requests() -> None:
    """All 40 are there from 40 on, though only 39 are ever seen at once until 1,000."""
    ramp = [Flight(at, 500) for at in range(1, 40)]
    again = [Flight(501, 999)] * 39 + [Flight(1000, 2000)] * 40 + [Flight(1500, 1600)]
    window = steady_window([Flight(0, 5), *ramp, *again], closed_loop=True)
    assert window == Window(39, 1500)
