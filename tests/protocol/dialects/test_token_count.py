"""Numbers of tokens out of what providers write, also those that are none."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.dialects.anthropic.reply.usage import read_usage as anthropic
from headrace.protocol.dialects.gemini.reply.usage import usage_of as gemini
from headrace.protocol.dialects.mistral.reply.usage import read_usage as mistral
from headrace.protocol.dialects.openai_chat.reply.glance import glance
from headrace.protocol.dialects.openai_chat.reply.read_reply import read_reply
from headrace.protocol.dialects.openai_chat.reply.usage import read_usage as openai_chat
from headrace.protocol.dialects.openai_responses.reply.usage import read_usage as openai_responses
from headrace.protocol.dialects.token_count import (
    MOST_TOKENS,
    as_tokens,
    reported_tokens,
    summed,
)
from headrace.protocol.neutral.dialect import DamagedReplyError

NONE = [2**63 - 1, MOST_TOKENS + 1, -5, 1.5, float("nan"), float("inf"), 1e300, True, "12", [], {}]
READERS = [
    (openai_chat, "prompt_tokens", "completion_tokens"),
    (openai_responses, "input_tokens", "output_tokens"),
    (anthropic, "input_tokens", "output_tokens"),
    (gemini, "promptTokenCount", "candidatesTokenCount"),
]


@pytest.mark.parametrize("value", NONE)
def test_what_is_no_number_of_tokens(value: Any) -> None:
    assert as_tokens(value) is None
    assert reported_tokens({"a": 1, "b": value}, "a", "b") is None


def test_what_is_one() -> None:
    assert [as_tokens(one) for one in (0, 12.0, MOST_TOKENS)] == [0, 12, MOST_TOKENS]
    assert as_tokens("12", or_text=True) == 12
    assert reported_tokens({"a": 1, "b": None}, "a", "b", "c") == (1, 0, 0)
    assert reported_tokens({"b": None}, "a", "b") is None


def test_a_sum_of_counts_of_which_one_is_unknown_is_unknown() -> None:
    assert summed((5, 0, 3)) == 8
    assert summed((5, None)) is None and summed(()) is None


@pytest.mark.parametrize("value", [-3, 1.5, "4", 2**70])
@pytest.mark.parametrize(
    "told",
    [
        lambda value: {"cache_read_input_tokens": value},
        lambda value: {"cache_creation": {"ephemeral_1h_input_tokens": value}},
        lambda value: {"cache_creation": {"ephemeral_5m_input_tokens": value}},
    ],
)
def test_anthropics_cache_is_not_free_for_a_count_that_is_none(told: Any, value: Any) -> None:
    assert anthropic({"input_tokens": 5, "output_tokens": 2, **told(value)}) is None


@pytest.mark.parametrize("value", [-3, 1.5, "4", 2**70])
def test_what_mistral_heard_is_not_free_for_a_number_that_is_none(value: Any) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    assert mistral({**usage, "prompt_audio_seconds": value}) is None
    nothing: Any
    for nothing in ({}, None, 0):
        found = mistral({**usage, "prompt_audio_seconds": nothing})
        assert found is not None and found.input_audio_s == 0


@pytest.mark.parametrize(("read", "sent", "written"), READERS)
@pytest.mark.parametrize("value", [2**63 - 1, -5, 1.5, "x", True])
def test_usage_with_such_a_count_is_none(read: Any, sent: str, written: str, value: Any) -> None:
    assert read({sent: value}) is None
    assert read({sent: value, written: 3}) is None
    assert read({sent: 3, written: value}) is None
    assert read({sent: None, written: None}) is None
    usage = read({sent: 12.0, written: 3})
    assert (usage.prompt_tokens, usage.completion_tokens) == (12, 3)


@pytest.mark.parametrize("count", ["1e400", "9" * 5000])
def test_numbers_beyond_all_bounds_are_a_damaged_reply(count: str) -> None:
    body = (
        '{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},'
        '"finish_reason":"stop"}],"usage":{"prompt_tokens":' + count + "}}"
    ).encode()
    assert glance(body) is None
    with pytest.raises(DamagedReplyError):
        read_reply(body)


def test_a_cost_beyond_all_bounds_is_not_told() -> None:
    usage = openai_chat({"prompt_tokens": 1, "completion_tokens": 1, "cost": 1e300})
    assert usage is not None and usage.cost_nusd is None
    usage = openai_responses({"input_tokens": 1, "output_tokens": 1, "cost": -5})
    assert usage is not None and usage.cost_nusd is None
