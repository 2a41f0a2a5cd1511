"""Speculative decoding: formula S3 against computed figures, its limits, and where it stops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.plan.speed.speculation import (
    acceptance_for,
    batch_speedup,
    best_draft_length,
    expected_tokens_per_pass,
    paying_batches,
    speedup,
)
from headrace.plan.step.roofline import Roofline
from headrace.telemetry.work import Work

H100 = Roofline(
    bandwidth_bytes_per_s=3.35e12,
    peak_operations_per_s=989e12,
    bandwidth_efficiency=1,
    compute_efficiency=1,
)
PARAMETERS = 70e9

shares = st.floats(0, 1)
costs = st.floats(0, 2)
lengths = st.integers(0, 16)


def dense_step_s(batch: int, tokens: int) -> float:
    """A 70B of 16 bits on one H100 whose KV is small."""
    return H100.time(Work(2 * PARAMETERS, 2 * PARAMETERS * batch * tokens)).seconds


def draft_step_s(batch: int, tokens: int) -> float:
    return 0.05 * dense_step_s(1, 1)


@pytest.mark.parametrize(
    ("acceptance", "gains"),
    [
        (0.5, {1: 1.43, 2: 1.59, 3: 1.63, 4: 1.61, 5: 1.57}),
        (0.7, {1: 1.62, 2: 1.99, 3: 2.20, 4: 2.31, 5: 2.35, 7: 2.33}),
        (0.8, {1: 1.71, 2: 2.22, 3: 2.57, 4: 2.80, 5: 2.95}),
        (0.9, {1: 1.81, 2: 2.46, 3: 2.99, 4: 3.41, 5: 3.75}),
    ],
)
def test_gains_at_a_draft_twenty_times_cheaper(acceptance: float, gains: dict[int, float]) -> None:
    for draft_tokens, gain in gains.items():
        assert speedup(acceptance, draft_tokens, 0.05) == pytest.approx(gain, abs=0.0051)


def test_f16_a_cheap_draft_accepted_in_seven_of_ten_gains_two_to_three_times() -> None:
    assert 2 < speedup(0.7, 3, 0.05) < 3
    assert 2 < speedup(0.7, 5, 0.05) < 3


def test_a_draft_of_1b_beats_one_of_8b_for_a_70b() -> None:
    assert speedup(0.7, 4, 8 / 70) == pytest.approx(1.90, abs=0.005)
    assert speedup(0.7, 4, 1 / 70) == pytest.approx(2.62, abs=0.005)
    needed = acceptance_for(speedup(0.7, 4, 1 / 70), 4, 8 / 70)
    assert needed == pytest.approx(0.87, abs=0.01)


def test_nothing_accepted_is_one_token_and_everything_all_of_them() -> None:
    assert expected_tokens_per_pass(0, 5) == 1
    assert expected_tokens_per_pass(1, 5) == 6
    assert speedup(0, 4, 0.05) == pytest.approx(1 / 1.2)
    assert speedup(1, 4, 0) == 5
    assert speedup(0.9, 0, 0.5) == 1


def test_close_to_one_the_formula_meets_its_limit() -> None:
    assert expected_tokens_per_pass(1 - 1e-9, 5) == pytest.approx(6)


def test_best_draft_length() -> None:
    assert best_draft_length(0.5, 0.05).draft_tokens == 3
    found = best_draft_length(0.7, 0.05)
    gains = [speedup(0.7, length, 0.05) for length in range(17)]
    assert found.speedup == max(gains)
    assert found.draft_tokens == gains.index(max(gains)) == 6
    assert found.expected_tokens_per_pass == pytest.approx((1 - 0.7**7) / 0.3)


def test_no_draft_where_none_pays() -> None:
    for choice in (best_draft_length(0, 0.05), best_draft_length(0.3, 0.9)):
        assert choice.draft_tokens == 0
        assert choice.speedup == 1


def test_where_all_is_accepted_for_nothing_the_longest_is_best() -> None:
    assert best_draft_length(1, 0, longest=8).draft_tokens == 8


def test_a_dense_model_stops_gaining_where_verifying_is_bound_by_compute() -> None:
    # E = 2.7731 tokens a pass, K·c = 0.2. Verifying takes B·5/295.2 steps where that is above 1, so
    # the gain is 1 at B = 295.2 · (2.7731 − 0.2) / 5 = 151.9.
    result = paying_batches(0.7, 4, 300, dense_step_s, draft_step_s)
    assert result.stops_at_batch == 152
    assert result.points[0].speedup == pytest.approx(speedup(0.7, 4, 0.05))
    assert result.points[150].speedup > 1 >= result.points[151].speedup
    assert [point.batch for point in result.points] == list(range(1, 301))


def test_speculation_pays_at_every_batch_that_was_asked() -> None:
    assert paying_batches(0.7, 4, 100, dense_step_s, draft_step_s).stops_at_batch is None


def test_speculation_pays_nowhere() -> None:
    assert paying_batches(0.0, 4, 10, dense_step_s, draft_step_s).stops_at_batch == 1


def test_a_batch_beyond_the_ridge_loses() -> None:
    assert batch_speedup(0.7, 4, 400, dense_step_s, draft_step_s).speedup < 1


@given(acceptance=shares, more=shares, draft_tokens=lengths, cost=costs)
def test_more_acceptance_never_costs(
    acceptance: float, more: float, draft_tokens: int, cost: float
) -> None:
    low, high = sorted((acceptance, more))
    assert speedup(low, draft_tokens, cost) <= speedup(high, draft_tokens, cost) * (1 + 1e-9)


@given(acceptance=shares, draft_tokens=lengths, cost=costs, more=costs)
def test_a_dearer_draft_never_gains(
    acceptance: float, draft_tokens: int, cost: float, more: float
) -> None:
    low, high = sorted((cost, more))
    assert speedup(acceptance, draft_tokens, high) <= speedup(acceptance, draft_tokens, low)


@given(acceptance=shares, draft_tokens=lengths)
def test_a_pass_yields_from_one_to_all_tokens(acceptance: float, draft_tokens: int) -> None:
    expected = expected_tokens_per_pass(acceptance, draft_tokens)
    assert 1 - 1e-9 <= expected <= (draft_tokens + 1) * (1 + 1e-9)


@given(acceptance=shares, cost=costs)
def test_the_best_length_never_loses(acceptance: float, cost: float) -> None:
    assert best_draft_length(acceptance, cost).speedup >= 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: expected_tokens_per_pass(1.2, 4), "acceptance is 1.2.*from 0 to 1"),
        (lambda: expected_tokens_per_pass(float("nan"), 4), "acceptance is nan"),
        (lambda: expected_tokens_per_pass(0.5, -1), "draft_tokens is -1.*at least 0"),
        (lambda: speedup(0.5, 4, -0.1), "cost_ratio is -0.1.*at least 0"),
        (lambda: speedup(0.5, 4, 0.1, 0), "verify_ratio is 0.*above 0"),
        (lambda: acceptance_for(9, 4, 0.05), "wanted_speedup is 9.*at most 4.17"),
        (lambda: batch_speedup(0.5, 4, 0, dense_step_s, draft_step_s), "batch is 0.*at least 1"),
    ],
)
def test_errors_name_field_value_and_limit(call: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()  # type: ignore[operator]
