"""Cost of tokens: the register's figures, limits, and what never lowers a price."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog.rows.price import Price
from headrace.errors import ConfigError
from headrace.plan.cost.cost import (
    ApiUse,
    OwnedHardware,
    api_cost,
    joules_per_token,
    operations_usd_per_hour,
    own_cost,
    rented_cost,
    tokens_per_s_for,
)

RTX_4090 = OwnedHardware(price_usd=1500, lifetime_years=3, power_w=450, pue=1, usd_per_kwh=0.15)
PRICE = Price(
    id="test",
    name="Test",
    provider="p",
    model="m",
    effective_from=dt.date(2026, 1, 1),
    input_usd_per_million_tokens=5.0,
    output_usd_per_million_tokens=25.0,
    cache_read_usd_per_million_tokens=0.5,
    cache_write_5m_usd_per_million_tokens=6.25,
    input_usd_per_million_tokens_above={"200000": 10.0},
    output_usd_per_million_tokens_above={"200000": 37.5},
    batch_factor=0.5,
)
BARE = Price(
    id="bare",
    name="Bare",
    provider="p",
    model="m",
    effective_from=dt.date(2026, 1, 1),
    input_usd_per_million_tokens=1.0,
    output_usd_per_million_tokens=2.0,
)


def test_an_h100_serving_one_request() -> None:
    assert rented_cost(2.69, 92.5, 1).usd_per_million_tokens == pytest.approx(8.08, abs=0.005)
    assert rented_cost(1.99, 92.5, 1).usd_per_million_tokens == pytest.approx(5.98, abs=0.005)


def test_speed_an_h100_needs_for_a_dollar_a_million() -> None:
    assert tokens_per_s_for(1.00, 2.69) == pytest.approx(747, abs=0.5)
    assert tokens_per_s_for(0.75, 2.69) == pytest.approx(996, abs=0.5)


def test_a_4090_serving_one_request() -> None:
    cost = own_cost(RTX_4090, 67.5, 1)
    assert cost.energy_usd_per_million_tokens == pytest.approx(0.28, abs=0.005)
    assert cost.hardware_usd_per_million_tokens == pytest.approx(0.23, abs=0.005)
    assert cost.usd_per_million_tokens == pytest.approx(0.278 + 0.235, abs=0.001)


def test_two_thousandths_of_a_dollar_on_a_4090_needs_9375_tokens_a_second() -> None:
    assert tokens_per_s_for(0.002, 0.45 * 0.15) == pytest.approx(9375)


def test_f23_ten_kilowatts_for_a_month() -> None:
    server = OwnedHardware(
        price_usd=0, lifetime_years=3, power_w=10_000, pue=1, usd_per_kwh=1, idle_power_share=1
    )
    assert server.hour(0.2).usd_per_month == pytest.approx(7300)


def test_f22_all_costs_are_a_multiple_of_the_hardware() -> None:
    year = 8760
    rest = operations_usd_per_hour(300_000, 3, 2.5)
    server = OwnedHardware(
        price_usd=300_000,
        lifetime_years=3,
        power_w=0,
        pue=1,
        usd_per_kwh=0,
        operations_usd_per_hour=rest,
    )
    assert server.hour(1).usd_per_hour * 3 * year == pytest.approx(750_000)


def test_an_hour_by_hand() -> None:
    server = OwnedHardware(
        price_usd=26_280,
        lifetime_years=3,
        power_w=1000,
        pue=1.5,
        usd_per_kwh=0.2,
        operations_usd_per_hour=0.5,
        idle_power_share=0.2,
    )
    hour = server.hour(0.5)
    assert hour.hardware_usd_per_hour == pytest.approx(1)
    assert hour.energy_usd_per_hour == pytest.approx(0.6 * 1.5 * 0.2)
    assert hour.usd_per_hour == pytest.approx(1.68)
    cost = own_cost(server, 1000, 0.5)
    assert cost.usd_per_million_tokens == pytest.approx(1.68 / 1.8)
    assert cost.tokens_per_month == pytest.approx(1.8e6 * 730)


def test_half_used_rent_costs_twice_and_overhead_on_top() -> None:
    whole = rented_cost(3.6, 1000, 1).usd_per_million_tokens
    assert whole == pytest.approx(1)
    assert rented_cost(3.6, 1000, 0.5).usd_per_million_tokens == pytest.approx(2)
    assert rented_cost(3.6, 1000, 1, 1.25).usd_per_million_tokens == pytest.approx(1.25)


def test_energy_of_a_token() -> None:
    assert joules_per_token(700, 100) == 7
    with pytest.raises(ConfigError, match="tokens_per_s is 0"):
        joules_per_token(700, 0)


def test_an_api_without_cache() -> None:
    cost = api_cost(PRICE, ApiUse(prompt_tokens=9000, output_tokens=1000))
    assert cost.usd_per_request == pytest.approx(0.045 + 0.025)
    assert cost.usd_per_million_tokens == pytest.approx(7)
    assert cost.assumptions == ()


def test_cached_reads_and_writes() -> None:
    use = ApiUse(prompt_tokens=10_000, output_tokens=0, cache_read_share=0.9, cache_write_share=0.1)
    cost = api_cost(PRICE, use)
    assert cost.effective_input_usd_per_million_tokens == pytest.approx(0.9 * 0.5 + 0.1 * 6.25)
    everything = ApiUse(prompt_tokens=10_000, output_tokens=0, cache_read_share=1)
    assert api_cost(PRICE, everything).usd_per_million_tokens == pytest.approx(0.5)


def test_a_prompt_above_a_boundary_is_priced_above_it_as_a_whole() -> None:
    below = api_cost(PRICE, ApiUse(prompt_tokens=200_000, output_tokens=1000))
    above = api_cost(PRICE, ApiUse(prompt_tokens=200_001, output_tokens=1000))
    assert below.usd_per_request == pytest.approx(1.025)
    assert above.usd_per_request == pytest.approx(2.00001 + 0.0375)


def test_batches_at_half_the_price_and_an_error_where_there_are_none() -> None:
    use = ApiUse(prompt_tokens=9000, output_tokens=1000, batch=True)
    assert api_cost(PRICE, use).usd_per_million_tokens == pytest.approx(3.5)
    with pytest.raises(ConfigError, match="batch is set; price bare has no batch_factor: omit"):
        api_cost(BARE, use)


def test_prices_nobody_states_are_those_of_input_and_said() -> None:
    use = ApiUse(prompt_tokens=100, output_tokens=0, cache_read_share=0.5, cache_write_share=0.5)
    cost = api_cost(BARE, use)
    assert cost.effective_input_usd_per_million_tokens == 1
    assert [line.split(":")[0] for line in cost.assumptions] == [
        "bare has no price for cached reads",
        "bare has no price for cache writes",
    ]


def test_a_price_that_is_missing_is_named() -> None:
    empty = Price(id="empty", name="E", provider="p", model="m", effective_from=dt.date(2026, 1, 1))
    with pytest.raises(ConfigError, match="input_usd_per_million_tokens of price empty"):
        api_cost(empty, ApiUse(prompt_tokens=1, output_tokens=1))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rented_cost(2, 100, 0), "utilization is 0.*at least 0.0001.*hardly ever"),
        (lambda: own_cost(RTX_4090, 100, 0), "utilization is 0.*at least 0.0001.*hardly ever"),
        (lambda: rented_cost(2, 100, 1.2), "utilization is 1.2.*from 0 to 1"),
        (lambda: rented_cost(2, 0, 1), "tokens_per_s is 0.*above 0"),
        (lambda: rented_cost(-2, 1, 1), "usd_per_hour is -2.*at least 0"),
        (lambda: rented_cost(2, 1, 1, 0.5), "overhead_multiplier is 0.5.*at least 1"),
        (lambda: tokens_per_s_for(0, 2), "usd_per_million_tokens is 0.*above 0"),
        (lambda: operations_usd_per_hour(1, 3, 0.5), "multiplier is 0.5.*at least 1"),
        (lambda: ApiUse(prompt_tokens=0, output_tokens=1), "prompt_tokens is 0.*at least 1"),
        (
            lambda: ApiUse(
                prompt_tokens=1, output_tokens=1, cache_read_share=0.8, cache_write_share=0.5
            ),
            r"cache_read_share \+ cache_write_share is 1.3.*from 0 to 1",
        ),
        (
            lambda: OwnedHardware(price_usd=1, lifetime_years=0, power_w=1, pue=1, usd_per_kwh=0),
            "lifetime_years is 0.*above 0",
        ),
        (
            lambda: OwnedHardware(price_usd=1, lifetime_years=1, power_w=1, pue=0.9, usd_per_kwh=0),
            "pue is 0.9.*at least 1",
        ),
    ],
)
def test_errors_name_field_value_limit_and_remedy(call: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()  # type: ignore[operator]


busy = st.floats(0.01, 1)


@given(low=busy, high=busy, idle=st.floats(0, 1))
def test_busier_hardware_never_makes_dearer_tokens(low: float, high: float, idle: float) -> None:
    low, high = sorted((low, high))
    server = OwnedHardware(
        price_usd=1000,
        lifetime_years=3,
        power_w=500,
        pue=1.4,
        usd_per_kwh=0.2,
        idle_power_share=idle,
    )
    dear, cheap = (own_cost(server, 100, one).usd_per_million_tokens for one in (low, high))
    assert cheap <= dear * (1 + 1e-9)


@given(hit=st.floats(0, 1), more=st.floats(0, 1), prompt=st.integers(1, 400_000))
def test_more_hits_never_cost_where_reads_are_cheaper(hit: float, more: float, prompt: int) -> None:
    few, many = sorted((hit, more))
    costs = [
        api_cost(
            PRICE, ApiUse(prompt_tokens=prompt, output_tokens=10, cache_read_share=one)
        ).usd_per_request
        for one in (few, many)
    ]
    assert costs[1] <= costs[0] * (1 + 1e-9)
