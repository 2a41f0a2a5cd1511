"""Prices and batching, worked out by hand."""

from __future__ import annotations

import msgspec
import pytest

from headrace.bench.cost import (
    Cost,
    Prices,
    Spent,
    TokenPrice,
    batching_efficiency,
    cost,
    run_cost_usd,
    tokens_per_s_per_usd,
    usd_per_million_tokens,
)


def test_what_a_run_at_a_hosted_endpoint_cost() -> None:
    price = TokenPrice(input_usd=2, output_usd=8, cached_usd=0.5)
    cost = run_cost_usd(
        price, prompt_tokens=1_000_000, output_tokens=250_000, cached_tokens=400_000
    )
    assert cost == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.25 * 8)
    flat = TokenPrice(input_usd=2, output_usd=8)
    assert run_cost_usd(flat, prompt_tokens=10, output_tokens=0, cached_tokens=10) == 2e-5
    with pytest.raises(ValueError, match="cached_tokens 3 of 2"):
        run_cost_usd(flat, prompt_tokens=2, output_tokens=0, cached_tokens=3)


def test_what_tokens_of_a_machine_cost() -> None:
    # 3.6 $/h is 0.001 $/s: a thousand tokens a second cost 1 $ per million.
    assert usd_per_million_tokens(3.6, 1000) == pytest.approx(1.0)
    assert tokens_per_s_per_usd(1000, 4) == 250
    assert usd_per_million_tokens(3.6, 0) is None and tokens_per_s_per_usd(1000, 0) is None


def test_what_batching_gained() -> None:
    assert batching_efficiency(400, 8, 50) == 1
    assert batching_efficiency(50, 8, 50) == 1 / 8
    assert batching_efficiency(400, 8, 0) is None


# A hundred seconds: 50 requests with 1,000 tokens of prompt, 400 of them cached, and 200 of answer.
SPENT = Spent(
    requests=50,
    prompt_tokens=50_000,
    output_tokens=10_000,
    cached_tokens=20_000,
    uncounted=0,
    seconds=100.0,
)


def test_a_hosted_endpoint_by_its_tokens() -> None:
    got = cost(Prices(input_usd=2, output_usd=8, cached_usd=0.5), SPENT)
    # 30,000 · 2 + 20,000 · 0.5 + 10,000 · 8, over a million.
    assert got.basis == "tokens" and got.why is None
    assert got.run_usd == pytest.approx(0.15)
    assert got.per_request == pytest.approx(0.003)
    assert got.per_million_output == pytest.approx(15.0)
    assert got.per_million == pytest.approx(2.5)
    # 100 tokens/s, and 0.15 $ in 100 s are 5.4 $/h.
    assert got.tokens_per_s_per_usd == pytest.approx(100 / 5.4)


def test_a_machine_by_the_hour() -> None:
    got = cost(Prices(hour_usd=3.6), SPENT)
    assert got.basis == "machine" and got.why is None
    assert got.run_usd == pytest.approx(0.1)
    assert got.per_million_output == pytest.approx(10.0)
    assert got.per_million == pytest.approx(0.1 / 0.06)
    assert got.tokens_per_s_per_usd == pytest.approx(100 / 3.6)


def test_an_unknown_price_is_unknown_and_not_nothing() -> None:
    none = cost(Prices(), SPENT)
    assert none == Cost() and none.basis == "unknown" and none.run_usd is None
    assert none.why is not None and "--price-per-hour" in none.why
    half = cost(Prices(output_usd=8), SPENT)
    assert (half.basis, half.run_usd, half.per_million) == ("tokens", None, None)
    assert half.why is not None and "--price-input" in half.why
    uncounted = cost(Prices(input_usd=1, output_usd=1), msgspec.structs.replace(SPENT, uncounted=3))
    assert (uncounted.run_usd, uncounted.per_million) == (None, None)
    assert uncounted.why == "the tokens of 3 requests were not counted"
    hours = cost(Prices(hour_usd=3.6), msgspec.structs.replace(SPENT, uncounted=3))
    assert hours.run_usd == pytest.approx(0.1) and hours.per_million_output is None


def test_a_price_is_needed_only_where_there_are_such_tokens() -> None:
    embeddings = msgspec.structs.replace(SPENT, output_tokens=0)
    got = cost(Prices(input_usd=2), embeddings)
    assert got.run_usd == pytest.approx(0.1) and got.per_million == pytest.approx(2.0)
    assert got.per_million_output is None
    free = cost(Prices(input_usd=0, output_usd=0), SPENT)
    assert (free.run_usd, free.per_million, free.tokens_per_s_per_usd) == (0.0, 0.0, None)


def test_nothing_completed_costs_by_the_hour_all_the_same() -> None:
    nothing = Spent(
        requests=0, prompt_tokens=0, output_tokens=0, cached_tokens=0, uncounted=0, seconds=100.0
    )
    got = cost(Prices(hour_usd=3.6), nothing)
    assert got.run_usd == pytest.approx(0.1)
    assert (got.per_request, got.per_million) == (None, None)
