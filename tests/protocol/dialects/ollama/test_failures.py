"""Why an Ollama server gave no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.ollama import PROVIDER, OllamaStreamReader
from headrace.protocol.neutral.event import ReplyFailure
from tests.protocol.neutral.streams import read_stream


def kind(status: int, error: Any) -> str:
    return PROVIDER.read_failure(status, {}, json.dumps({"error": error}).encode()).kind


@pytest.mark.parametrize(
    ("status", "error", "wanted"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools", "bad_request"),
        (400, "the input length exceeds the context length", "context_length"),
        (400, "input length exceeds maximum context length", "context_length"),
        (500, "prompt too long; exceeded max context length by 5 tokens", "context_length"),
        (401, "unauthorized", "authentication"),
        (402, "upgrade", "payment"),
        (403, "", "permission"),
        (404, "model 'x' not found", "not_found"),
        (413, "", "too_large"),
        (422, "", "bad_request"),
        (429, "you have reached your hourly usage limit", "rate_limit"),
        (500, "model requires more system memory (9 GiB) than is available", "server"),
        (500, "server busy, please try again. maximum pending requests exceeded", "overloaded"),
        (502, "", "server"),
        (503, "server busy", "overloaded"),
        (504, "", "timeout"),
        (418, "", "bad_request"),
    ],
)
def test_kinds(status: int, error: str, wanted: str) -> None:
    assert kind(status, error) == wanted


def test_what_else_a_failure_tells() -> None:
    headers = {"Retry-After": "2", "X-Request-Id": "r1"}
    failure = PROVIDER.read_failure(429, headers, b'{"error":{"message":"slow down","type":"x"}}')
    assert failure.message == "slow down"
    assert (failure.status, failure.retry_after_s, failure.request_id) == (429, 2.0, "r1")


_KEYS = st.sampled_from(
    ["message", "error", "done", "content", "tool_calls", "function", "name", "model", "logprobs"]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_JSON | st.text(max_size=9), max_size=4), st.integers(100, 599))
def test_nothing_that_a_server_says_raises(said: list[Any], status: int) -> None:
    stream = b"\n".join(
        one.encode() if isinstance(one, str) else json.dumps(one).encode() for one in said
    )
    events = read_stream(OllamaStreamReader(), stream)
    assert not any(isinstance(one, ReplyFailure) for one in events[:-1])
    PROVIDER.read_failure(status, {"retry-after": "x"}, stream)
