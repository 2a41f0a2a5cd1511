"""Servers that refuse a field: which flag and which key help."""

from __future__ import annotations

import pytest

from headrace.bench.client.refused_field import refused_field


@pytest.mark.parametrize(
    ("message", "flag"),
    [
        (
            "HTTP 400: Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "--max-tokens-field max_completion_tokens",
        ),
        ("HTTP 400: unknown field max_completion_tokens", "--max-tokens-field max_tokens"),
        (
            "HTTP 422: [{'type': 'extra_forbidden', 'loc': ['body', 'stream_options'], 'msg': "
            "'Extra inputs are not permitted'}]",
            "--no-include-usage",
        ),
        ("HTTP 400: stream_options.include_usage is not supported", "--no-include-usage"),
        (
            "HTTP 400: stream_options: unknown field continuous_usage_stats",
            "no --continuous-usage",
        ),
        ("HTTP 400: Unrecognized request argument: return_metrics", "--no-return-metrics"),
    ],
)
def test_the_flag_that_helps(message: str, flag: str) -> None:
    status = int(message[5:8])
    remedy = refused_field(status, message)
    assert remedy is not None
    assert remedy.flag == flag
    assert refused_field(500, message) is None


@pytest.mark.parametrize(
    "message",
    [
        "HTTP 400: max_tokens is too large: 9000; this model has 4096",
        "HTTP 400: model is not supported",
        "HTTP 400: max_tokens: must be at least 1",
    ],
)
def test_complaints_about_values_have_other_remedies(message: str) -> None:
    assert refused_field(400, message) is None
