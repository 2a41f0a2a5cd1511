"""The time of a step against sums written out by hand."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.plan.step.latency_model import LatencyModel

MODEL = LatencyModel(
    step_s=1.0,
    prefill_token_s=0.1,
    prefill_pair_s=0.01,
    decode_request_s=0.5,
    decode_context_token_s=0.001,
)


def test_an_empty_step_takes_its_fixed_part() -> None:
    assert MODEL.step((), 0, 0) == 1.0


def test_a_prompt_attends_to_itself_and_to_what_came_before() -> None:
    # Three tokens from position 0: 1 + 2 + 3 pairs; from position 10: 11 + 12 + 13.
    assert MODEL.step([(0, 3)], 0, 0) == pytest.approx(1 + 0.3 + 0.06)
    assert MODEL.step([(10, 3)], 0, 0) == pytest.approx(1 + 0.3 + 0.36)


def test_pieces_of_a_prompt_cost_what_it_costs_whole_but_for_the_steps() -> None:
    whole = MODEL.step([(0, 8)], 0, 0)
    pieces = MODEL.step([(0, 5)], 0, 0) + MODEL.step([(5, 3)], 0, 0)
    assert pieces == pytest.approx(whole + MODEL.step_s)


def test_prefill_and_decode_share_the_fixed_part() -> None:
    assert MODEL.step([(0, 1)], 4, 1000) == pytest.approx(1 + 0.1 + 0.01 + 2 + 1)


def test_a_negative_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="prefill_token_s"):
        LatencyModel(
            step_s=0,
            prefill_token_s=-1e-9,
            prefill_pair_s=0,
            decode_request_s=0,
            decode_context_token_s=0,
        )
