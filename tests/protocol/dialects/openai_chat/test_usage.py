"""Usage of all the servers."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.dialects.openai_chat.reply.usage import (
    find_usage,
    read_usage,
    usage_extra,
    write_usage,
)
from headrace.protocol.neutral.usage import TokenUsage

OPENAI = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 40, "audio_tokens": 10},
    "completion_tokens_details": {
        "reasoning_tokens": 20,
        "audio_tokens": 5,
        "accepted_prediction_tokens": 3,
    },
}


def test_lines_that_do_not_overlap() -> None:
    assert read_usage(OPENAI) == TokenUsage(
        input_tokens=50,
        cache_read_tokens=40,
        input_audio_tokens=10,
        output_tokens=25,
        reasoning_tokens=20,
        output_audio_tokens=5,
    )


def test_a_round_trip_keeps_what_has_no_line() -> None:
    usage = read_usage(OPENAI)
    assert usage is not None
    assert write_usage(usage, usage_extra(OPENAI)) == OPENAI


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "prompt_cache_hit_tokens": 6,
                "prompt_cache_miss_tokens": 4,
            },
            TokenUsage(input_tokens=4, cache_read_tokens=6, output_tokens=4),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "cached_tokens": 3},
            TokenUsage(input_tokens=7, cache_read_tokens=3, output_tokens=4),
        ),
        (  # xAI: thoughts are in the total alone
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "total_tokens": 20,
                "completion_tokens_details": {"reasoning_tokens": 6},
            },
            TokenUsage(input_tokens=10, output_tokens=4, reasoning_tokens=6),
        ),
        (  # OpenRouter
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "cost": 0.0145476,
                "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
            },
            TokenUsage(
                input_tokens=7,
                cache_read_tokens=1,
                cache_write_tokens=2,
                output_tokens=4,
                cost_nusd=14_547_600,
            ),
        ),
        (  # more thoughts than answer (seen at OpenRouter)
            {
                "prompt_tokens": 43,
                "completion_tokens": 10,
                "total_tokens": 53,
                "completion_tokens_details": {"reasoning_tokens": 11},
            },
            TokenUsage(input_tokens=43, reasoning_tokens=10),
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "cost": {"total_cost": 0.5}},
            TokenUsage(input_tokens=1, output_tokens=1, cost_nusd=500_000_000),
        ),
        (  # OpenRouter's fee, and what the vendor takes for a key of one's own
            {
                "prompt_tokens": 1,
                "completion_tokens": 1,
                "cost": 0.00001,
                "is_byok": True,
                "cost_details": {"upstream_inference_cost": 0.0003},
            },
            TokenUsage(input_tokens=1, output_tokens=1, cost_nusd=310_000),
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "cost": 0, "is_byok": True},
            TokenUsage(input_tokens=1, output_tokens=1),
        ),
        (
            {
                "prompt_tokens": 1,
                "completion_tokens": 1,
                "cost": 0.5,
                "is_byok": False,
                "cost_details": {"upstream_inference_cost": 0.5},
            },
            TokenUsage(input_tokens=1, output_tokens=1, cost_nusd=500_000_000),
        ),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "cost_in_usd_ticks": 25},
            TokenUsage(input_tokens=1, output_tokens=1, cost_nusd=2),
        ),
        (  # nothing a server says may raise, and what is no count is no usage
            {
                "prompt_tokens": "9",
                "completion_tokens": -5,
                "total_tokens": 1e300,
                "prompt_tokens_details": [],
                "completion_tokens_details": {"reasoning_tokens": True},
                "cost": "free",
            },
            None,
        ),
        (
            {"prompt_tokens": 3.0, "completion_tokens": 2.0},
            TokenUsage(input_tokens=3, output_tokens=2),
        ),
    ],
)
def test_other_servers(usage: dict[str, Any], wanted: TokenUsage | None) -> None:
    assert read_usage(usage) == wanted


def test_googles_gap_is_thought() -> None:
    usage = {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}
    assert read_usage(usage) == TokenUsage(input_tokens=35, output_tokens=12)
    assert read_usage(usage, gap_is_thoughts=True) == TokenUsage(
        input_tokens=35, output_tokens=12, reasoning_tokens=62
    )


@pytest.mark.parametrize(
    "body",
    [
        {"usage": OPENAI},
        {"usage": None, "x_groq": {"usage": OPENAI}},
        {"choices": [{"usage": OPENAI}]},
    ],
)
def test_where_usage_is(body: dict[str, Any]) -> None:
    assert find_usage(body) == OPENAI


def test_none_is_none() -> None:
    assert find_usage({"usage": None, "choices": [3], "x_groq": []}) == {}
    assert read_usage({}) is None


def test_totals_of_another_vendors_lines() -> None:
    written = write_usage(
        TokenUsage(
            input_tokens=1,
            cache_read_tokens=2,
            cache_write_tokens=4,
            cache_write_1h_tokens=8,
            output_tokens=16,
            reasoning_tokens=32,
            cost_nusd=1500,
        ),
        {},
    )
    assert (written["prompt_tokens"], written["completion_tokens"]) == (15, 48)
    assert written["total_tokens"] == 63
    assert written["prompt_tokens_details"]["cache_write_tokens"] == 12
    assert written["cost"] == 1.5e-06
