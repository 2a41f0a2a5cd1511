"""Whole answers of Cohere's that nobody recorded."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.cohere import PROVIDER
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Text, Thinking, ToolCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.cohere.samples import reply


def test_thoughts_a_plan_and_calls_are_in_the_order_they_came_about() -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    message = {
        "content": [{"type": "thinking", "thinking": "Hm."}],
        "tool_plan": "I will call f.",
        "tool_calls": [{"id": "f_1", "type": "function", "function": function}],
    }
    answer = PROVIDER.read_reply(reply(message=message, finish_reason="TOOL_CALL"))
    assert answer.choices[0].parts == (
        Thinking(text="Hm."),
        Text(text="I will call f."),
        ToolCall(id="f_1", name="f", arguments='{"a": 1}'),
    )
    assert answer.choices[0].finish == "tool_calls"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("COMPLETE", "stop"),
        ("STOP_SEQUENCE", "stop"),
        ("MAX_TOKENS", "length"),
        ("TOOL_CALL", "tool_calls"),
        ("ERROR_TOXIC", "content_filter"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    assert PROVIDER.read_reply(reply(finish_reason=reason)).choices[0].finish == finish


@pytest.mark.parametrize(("reason", "kind"), [("ERROR", "server"), ("TIMEOUT", "timeout")])
def test_an_answer_that_failed_is_a_failure_and_no_stop(reason: str, kind: str) -> None:
    with pytest.raises(DamagedReplyError) as raised:
        PROVIDER.read_reply(reply(finish_reason=reason))
    assert raised.value.failure is not None
    assert raised.value.failure.kind == kind
    assert raised.value.failure.code == reason


@pytest.mark.parametrize(
    ("usage", "lines"),
    [
        (
            {
                "billed_units": {"input_tokens": 2406.0, "output_tokens": 2},
                "tokens": {"input_tokens": 2935, "output_tokens": 4},
                "cached_tokens": 2928,
            },
            TokenUsage(input_tokens=7, cache_read_tokens=2399, output_tokens=2),
        ),
        (
            {
                "billed_units": {"input_tokens": 33, "output_tokens": 22},
                "tokens": {"input_tokens": 1452, "output_tokens": 33},
                "cached_tokens": 144,
            },
            TokenUsage(input_tokens=33, output_tokens=22),
        ),
        (
            {
                "billed_units": {"input_tokens": 33, "output_tokens": 22},
                "tokens": {"input_tokens": -1, "output_tokens": 33},
                "cached_tokens": 30,
            },
            TokenUsage(input_tokens=33, output_tokens=22),
        ),
        (
            {"tokens": {"input_tokens": 5, "output_tokens": 6}},
            TokenUsage(input_tokens=5, output_tokens=6),
        ),
        (
            {"billed_units": {"input_tokens": "many", "output_tokens": -3}, "cached_tokens": True},
            None,
        ),
        ({}, None),
        ([], None),
    ],
)
def test_usage_is_what_is_billed(usage: Any, lines: TokenUsage | None) -> None:
    assert PROVIDER.read_reply(reply(usage=usage)).usage == lines


def test_logprobs_are_of_pieces() -> None:
    items = [
        {"text": "Hel", "token_ids": [1], "logprobs": [-0.5]},
        {"text": "lo", "token_ids": [2, 3], "logprobs": [-0.25, -0.5]},
        {"text": "?", "token_ids": [4], "logprobs": ["no"]},
    ]
    answer = PROVIDER.read_reply(reply(logprobs=items))
    assert answer.choices[0].logprobs == [
        {"token": "Hel", "logprob": -0.5, "bytes": [72, 101, 108], "top_logprobs": []},
        {"token": "lo", "logprob": -0.75, "bytes": [108, 111], "top_logprobs": []},
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"\xff"',
        b"[" * 100_000,
        b'{"message": "no such model"}',
        b'{"id": "a", "finish_reason": "COMPLETE"}',
        reply(finish_reason=None),
        reply(message={"tool_calls": [{"id": "1", "function": {"arguments": "{}"}}]}),
    ],
    ids=range(10),
)
def test_what_is_no_reply_is_damaged(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "message",
                    "content",
                    "type",
                    "text",
                    "thinking",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "usage",
                    "billed_units",
                    "tokens",
                    "input_tokens",
                    "logprobs",
                    "citations",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(message=_JSON, usage=_JSON, logprobs=_JSON)
def test_hostile_replies(message: Any, usage: Any, logprobs: Any) -> None:
    body = {"finish_reason": "COMPLETE", "message": message, "usage": usage, "logprobs": logprobs}
    with suppress(DamagedReplyError):
        PROVIDER.read_reply(json.dumps(body).encode())
