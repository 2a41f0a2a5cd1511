"""A glance says what the whole reading would, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.dialects.openai_chat.reply.glance import glance
from headrace.protocol.dialects.openai_chat.reply.read_reply import read_reply

REPLY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}
    ],
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 3},
    },
}


def body(**more: Any) -> bytes:
    return json.dumps({**REPLY, **more}).encode()


@given(
    finish=st.sampled_from(["stop", "length", "tool_calls", "content_filter", "error", None]),
    calls=st.sampled_from([None, [], [{"id": "1", "function": {"name": "f"}}]]),
    prompt=st.integers(0, 99),
    written=st.integers(0, 99),
    adds_up=st.booleans(),
    more=st.fixed_dictionaries(
        {},
        optional={
            "total_tokens": st.integers(0, 200),
            "cost": st.none() | st.floats(0, 1),
            "prompt_tokens_details": st.none()
            | st.fixed_dictionaries({"cached_tokens": st.integers(-1, 99)}),
            "completion_tokens_details": st.none()
            | st.fixed_dictionaries(
                {"reasoning_tokens": st.integers(0, 99)},
                optional={"audio_tokens": st.integers(0, 9)},
            ),
        },
    ),
)
def test_what_it_says_is_what_the_whole_reading_says(
    finish: str | None, calls: Any, prompt: int, written: int, adds_up: bool, more: dict[str, Any]
) -> None:
    if adds_up:
        more["total_tokens"] = prompt + written
    message = {"role": "assistant", "content": "Hi", "tool_calls": calls}
    told = body(
        choices=[{"finish_reason": finish, "message": message}],
        usage={"prompt_tokens": prompt, "completion_tokens": written, **more},
    )
    found = glance(told)
    if found is not None:
        whole = read_reply(told)
        assert (found.usage, found.finish) == (whole.usage, whole.choices[0].finish)


def test_an_ordinary_reply_needs_no_more() -> None:
    found = glance(body())
    assert found is not None and found.usage.cache_read_tokens == 3 and found.finish == "stop"


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"<html>",
        body()[:-1],
        body().replace(b"Hi", b"\xff"),
        body(error={"message": "no"}),
        body(choices=[]),
        body(choices=[{"finish_reason": "stop"}]),
        body(choices=[{"finish_reason": "error", "message": {"role": "assistant"}}]),
        body(choices=[*REPLY["choices"], *REPLY["choices"]]),
        body(usage=None),
        body(usage={}),
        body(usage={"prompt_tokens": 9, "completion_tokens": 0}),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_whole_reading(odd: bytes) -> None:
    assert glance(odd) is None
