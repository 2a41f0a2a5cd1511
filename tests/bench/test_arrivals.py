"""Schedules: exact totals, the promised distributions, and the same draw for the same seed."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.bench.arrivals import (
    NS_PER_S,
    RampShape,
    constant,
    count_within,
    from_timestamps,
    gamma,
    poisson,
    ramp,
)
from headrace.errors import ConfigError
from tests.bench.streams import unhurried

counts = st.integers(1, 200)
rates = st.floats(0.01, 1e5)
burstinesses = st.floats(0.05, 50)


def gaps(times: tuple[int, ...]) -> list[int]:
    return [after - before for before, after in pairwise((0, *times))]


@unhurried
@given(counts, rates, burstinesses, st.integers())
def test_a_drawn_schedule_takes_exactly_as_long_as_its_rate_says(
    count: int, rate: float, burstiness: float, seed: int
) -> None:
    times = gamma(count, rate, burstiness, random.Random(seed))
    assert len(times) == count and list(times) == sorted(times) and times[0] >= 0
    assert times[-1] == round(Fraction(count) * NS_PER_S / Fraction(rate))
    assert times == gamma(count, rate, burstiness, random.Random(seed))


@unhurried
@given(counts, rates)
def test_a_constant_schedule_is_even_to_the_nanosecond(count: int, rate: float) -> None:
    times = constant(count, rate)
    assert times[-1] == round(Fraction(count) * NS_PER_S / Fraction(rate))
    assert max(gaps(times)) - min(gaps(times)) <= 2
    assert constant(count, rate) == gamma(count, rate, math.inf, random.Random(0))


def test_schedules_worked_out_by_hand() -> None:
    assert constant(4, 10) == (100_000_000, 200_000_000, 300_000_000, 400_000_000)
    assert constant(3, math.inf) == poisson(3, math.inf, random.Random(0)) == (0, 0, 0)
    assert constant(0, 5) == poisson(0, 5, random.Random(0)) == ramp(0, 1, 2) == ()


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_deviate_as_the_burstiness_says(burstiness: float) -> None:
    drawn = gaps(gamma(20_000, 100, burstiness, random.Random(7)))
    mean = sum(drawn) / len(drawn)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in drawn) / len(drawn))
    assert mean == pytest.approx(NS_PER_S / 100)
    assert deviation / mean == pytest.approx(1 / math.sqrt(burstiness), rel=0.05)


def test_poisson_gaps_are_exponential() -> None:
    drawn = sorted(gaps(poisson(20_000, 1, random.Random(8))))
    for share in (0.1, 0.5, 0.9, 0.99):
        expected = -math.log(1 - share) * NS_PER_S
        assert drawn[int(share * len(drawn))] == pytest.approx(expected, rel=0.08)


@unhurried
@given(counts, rates, st.floats(0.1, 10), st.sampled_from(["linear", "exponential"]))
def test_a_ramp_rises_or_falls_and_takes_its_time(
    count: int, first: float, factor: float, shape: RampShape
) -> None:
    last = first * factor
    assume(abs(factor - 1) > 1e-3)
    seconds = (
        2 * count / (first + last)
        if shape == "linear"
        else count * math.log(factor) / (last - first)
    )
    times = ramp(count, first, last, shape)
    assert list(times) == sorted(times)
    assert times[-1] == pytest.approx(seconds * NS_PER_S, abs=2)
    steps = gaps(times)
    rising = all(after <= before + 2 for before, after in pairwise(steps))
    falling = all(after >= before - 2 for before, after in pairwise(steps))
    assert rising if factor > 1 else falling


@pytest.mark.parametrize(
    ("shape", "middle_rate"), [("linear", 55.0), ("exponential", math.sqrt(1000.0))]
)
def test_the_rate_of_a_ramp_halfway_in_time(shape: RampShape, middle_rate: float) -> None:
    times = ramp(10_000, 10, 100, shape)
    middle, width = times[-1] / 2, times[-1] / 20
    within = sum(middle - width <= at <= middle + width for at in times)
    assert within / (2 * width / NS_PER_S) == pytest.approx(middle_rate, rel=0.02)


def test_a_ramp_of_one_rate_is_constant_and_a_drawn_one_keeps_its_total() -> None:
    assert ramp(5, 10, 10) == constant(5, 10)
    drawn = ramp(300, 10, 40, burstiness=1.0, source=random.Random(9))
    assert drawn[-1] == ramp(300, 10, 40)[-1] == 12 * NS_PER_S
    assert drawn != ramp(300, 10, 40)
    with pytest.raises(ValueError, match="pass a source"):
        ramp(3, 1, 2, burstiness=1.0)


@unhurried
@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=50), st.floats(0.01, 1000))
def test_a_trace_keeps_its_shape_at_any_speed(stamps: list[int], speed: float) -> None:
    stamps.sort()
    times = from_timestamps(stamps, speed)
    assert times[0] == 0 and list(times) == sorted(times)
    assert times[-1] == round((stamps[-1] - stamps[0]) / Fraction(speed))
    assert from_timestamps(stamps) == tuple(at - stamps[0] for at in stamps)


def test_a_trace_ten_times_as_fast() -> None:
    assert from_timestamps([5_000, 6_000, 9_000], 10) == (0, 100, 400)
    assert from_timestamps([5, 9], math.inf) == (0, 0)
    assert from_timestamps([]) == ()
    with pytest.raises(ConfigError, match=r"timestamp 3 of trace row 3 is before 7.*sort"):
        from_timestamps([1, 7, 3])


def test_how_many_fit_into_a_duration() -> None:
    assert count_within(60, 2.5) == 150
    assert count_within(0.9, 1) == 0
    with pytest.raises(ConfigError, match="has no end"):
        count_within(1, math.inf)


@pytest.mark.parametrize("rate", [0, -1, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"rate .*must be above 0"):
        constant(3, rate)


def test_other_settings_that_are_refused() -> None:
    source = random.Random(0)
    with pytest.raises(ConfigError, match="burstiness 0"):
        gamma(3, 1, 0, source)
    with pytest.raises(ConfigError, match="speed -2"):
        from_timestamps([1], -2)
    with pytest.raises(ConfigError, match="count -1"):
        constant(-1, 1)
    with pytest.raises(ConfigError, match="last_rate inf of a ramp"):
        ramp(3, 1, math.inf)
