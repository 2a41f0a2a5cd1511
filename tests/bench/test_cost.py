"""Prices and batching, worked out by hand."""

from __future__ import annotations

import pytest

from headrace.bench.cost import (
    TokenPrice,
    batching_efficiency,
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
