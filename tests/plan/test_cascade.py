"""Cascades: the register's figure, chains, limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.plan.cost.cascade import Stage, cascade, most_escalated_share


def stage(usd: float, latency_s: float, escalated_share: float = 0.0) -> Stage:
    return Stage(
        name="one", usd_per_request=usd, latency_s=latency_s, escalated_share=escalated_share
    )


def test_f25_a_tenth_passed_on() -> None:
    result = cascade([stage(0.001, 0.5, 0.1), stage(0.03, 2.0)])
    assert result.latency_s == pytest.approx(0.7)
    assert result.usd_per_request == pytest.approx(0.004)
    assert result.worst_latency_s == 2.5
    assert result.reached_shares == (1, 0.1)


def test_three_stages() -> None:
    result = cascade([stage(1, 1, 0.5), stage(10, 2, 0.2), stage(100, 4)])
    assert result.usd_per_request == pytest.approx(1 + 5 + 10)
    assert result.latency_s == pytest.approx(1 + 1 + 0.4)
    assert result.reached_shares == pytest.approx((1, 0.5, 0.1))


def test_nothing_and_everything_passed_on() -> None:
    none = cascade([stage(1, 1, 0), stage(10, 2)])
    assert (none.usd_per_request, none.latency_s, none.worst_latency_s) == (1, 1, 1)
    everything = cascade([stage(1, 1, 1), stage(10, 2)])
    assert (everything.usd_per_request, everything.latency_s) == (11, 3)


def test_share_up_to_which_it_pays() -> None:
    assert most_escalated_share(1, 10) == 0.9
    assert most_escalated_share(0, 10) == 1
    assert most_escalated_share(12, 10) == 0


@given(share=st.floats(0, 1), small=st.floats(0, 100), large=st.floats(0.01, 100))
def test_it_pays_up_to_that_share(share: float, small: float, large: float) -> None:
    cost = cascade([stage(small, 1, share), stage(large, 1)]).usd_per_request
    limit = most_escalated_share(small, large)
    if share < limit - 1e-9:
        assert cost <= large * (1 + 1e-9)
    if share > limit + 1e-9:
        assert cost >= large * (1 - 1e-9)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: cascade([]), "stages is empty.*name one"),
        (lambda: cascade([stage(1, 1, 0.5)]), "escalated_share of one is 0.5.*last"),
        (lambda: stage(1, 1, 1.5), "escalated_share is 1.5.*from 0 to 1"),
        (lambda: stage(-1, 1), "usd_per_request is -1.*at least 0"),
        (lambda: most_escalated_share(1, 0), "large_usd_per_request is 0.*above 0"),
    ],
)
def test_errors_name_field_value_and_limit(call: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()  # type: ignore[operator]
