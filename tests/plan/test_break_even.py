"""Where hardware and an API cost the same: the register's figures, steps of a fleet, limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.plan.cost.break_even import Fleet, break_even

H100_MONTH_USD = 2.69 * 730


def test_f26_an_h100_by_the_month() -> None:
    assert pytest.approx(1964, abs=0.5) == H100_MONTH_USD
    fleet = Fleet(usd_per_month=H100_MONTH_USD, capacity_tokens_per_month=1e12)
    dear = break_even(fleet, 3.93, [500e6]).first_tokens_per_month
    cheap = break_even(fleet, 0.50, [500e6]).first_tokens_per_month
    assert dear == pytest.approx(500e6, rel=0.002)
    assert cheap == pytest.approx(3.9e9, rel=0.01)
    assert cheap is not None
    assert cheap / (730 * 3600) == pytest.approx(1494, abs=0.5)


def test_the_curve_by_hand() -> None:
    fleet = Fleet(
        usd_per_month=100, capacity_tokens_per_month=100e6, marginal_usd_per_million_tokens=0.5
    )
    one, two = break_even(fleet, 2.5, [20e6, 150e6]).points
    assert (one.replicas, one.fleet_usd_per_month, one.api_usd_per_month) == (1, 110, 50)
    assert one.fleet_usd_per_million_tokens == 5.5
    assert (two.replicas, two.fleet_usd_per_month, two.api_usd_per_month) == (2, 275, 375)


def test_a_second_replica_loses_again_until_it_is_used() -> None:
    # Each pays from 80 million on and makes 100: the 2nd loses from 100 to 160, the 3rd from 200 to
    # 240, the 4th from 300 to 320, the 5th is needed at 400 and pays from there.
    fleet = Fleet(usd_per_month=80, capacity_tokens_per_month=100e6)
    result = break_even(fleet, 1.0, [90e6, 150e6, 310e6, 401e6])
    assert result.first_tokens_per_month == pytest.approx(80e6)
    assert result.always_tokens_per_month == pytest.approx(320e6)
    wins = [point.fleet_usd_per_month <= point.api_usd_per_month for point in result.points]
    assert wins == [True, False, False, True]


def test_a_spare_replica_moves_the_first_meeting() -> None:
    fleet = Fleet(usd_per_month=80, capacity_tokens_per_month=100e6, least_replicas=2)
    result = break_even(fleet, 1.0, [50e6])
    assert result.points[0].replicas == 2
    assert result.first_tokens_per_month == pytest.approx(160e6)
    assert result.always_tokens_per_month == pytest.approx(320e6)


def test_hardware_that_never_pays() -> None:
    slow = Fleet(usd_per_month=100, capacity_tokens_per_month=1e6)
    assert break_even(slow, 1.0, [1e6]).first_tokens_per_month is None
    hungry = Fleet(
        usd_per_month=1, capacity_tokens_per_month=1e12, marginal_usd_per_million_tokens=2
    )
    assert break_even(hungry, 1.0, [1e6]).always_tokens_per_month is None


def test_hardware_that_pays_only_when_full() -> None:
    fleet = Fleet(usd_per_month=100, capacity_tokens_per_month=100e6)
    result = break_even(fleet, 1.0, [100e6])
    assert result.first_tokens_per_month == pytest.approx(100e6)
    assert result.always_tokens_per_month is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: Fleet(usd_per_month=1, capacity_tokens_per_month=0),
            "capacity_tokens_per_month is 0.*above 0",
        ),
        (
            lambda: Fleet(usd_per_month=1, capacity_tokens_per_month=1, least_replicas=0),
            "least_replicas is 0.*at least 1",
        ),
        (
            lambda: break_even(Fleet(usd_per_month=1, capacity_tokens_per_month=1), 0, [1]),
            "api_usd_per_million_tokens is 0.*above 0",
        ),
        (
            lambda: break_even(Fleet(usd_per_month=1, capacity_tokens_per_month=1), 1, [0]),
            "volumes_tokens_per_month is 0.*above 0",
        ),
    ],
)
def test_errors_name_field_value_and_limit(call: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()  # type: ignore[operator]


@given(
    usd=st.floats(1, 1e4),
    capacity=st.floats(1e6, 1e11),
    price=st.floats(0.01, 100),
    spare=st.integers(1, 4),
    beyond=st.floats(0.001, 5),
)
def test_below_the_first_it_loses_and_beyond_always_it_wins(
    usd: float, capacity: float, price: float, spare: int, beyond: float
) -> None:
    fleet = Fleet(usd_per_month=usd, capacity_tokens_per_month=capacity, least_replicas=spare)
    result = break_even(fleet, price, [])

    def saved(volume: float) -> float:
        return volume * price / 1e6 - fleet.usd(volume)

    if result.first_tokens_per_month is not None:
        assert saved(result.first_tokens_per_month * 0.999) < 0
    if result.always_tokens_per_month is not None:
        volume = result.always_tokens_per_month * (1 + beyond)
        assert saved(volume) >= -1e-9 * fleet.usd(volume)
    if result.first_tokens_per_month is None:
        replicas = math.ceil(spare * (1 + beyond))
        volume = replicas * capacity
        assert saved(volume) <= 1e-9 * fleet.usd(volume)
