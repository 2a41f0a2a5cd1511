"""Whole answers of Mistral's that nobody recorded."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.mistral import PROVIDER
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Opaque, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.mistral.samples import reply


def think(*texts: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "thinking",
        "thinking": [{"type": "text", "text": one} for one in texts],
    } | fields


def test_chunks_of_every_type() -> None:
    reference = {"type": "reference", "reference_ids": [3]}
    source = {"type": "tool_reference", "tool": "web_search", "title": "t"}
    thoughts = think("Hm", "m.", signature="s1")
    thoughts["thinking"].append(source)
    content = [
        thoughts,
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "so"},
        reference,
        {"type": "text", "text": "."},
    ]
    answer = PROVIDER.read_reply(reply({"role": "assistant", "content": content}))
    assert answer.choices[0].parts == (
        Thinking(text="Hmm.", signature=Signature("mistral", "s1")),
        Opaque("mistral", source),
        Text(text="It is so.", citations=(Citation(start=0, end=8, document="3"),)),
    )
    assert (answer.id, answer.model, answer.created_s) == ("r1", "m", 5)


def test_thoughts_with_two_signatures_are_two() -> None:
    content = [think("a", signature="1"), think("b", signature="2"), think("c")]
    assert PROVIDER.read_reply(reply({"content": content})).choices[0].parts == (
        Thinking(text="a", signature=Signature("mistral", "1")),
        Thinking(text="bc", signature=Signature("mistral", "2")),
    )


def test_arguments_may_be_an_object() -> None:
    calls = [
        {"id": "pcZFHqej8", "function": {"name": "f", "arguments": {"a": [1, "ü"]}}, "index": 0},
        {"id": "Ah0BFgzqX", "function": {"name": "f", "arguments": "{}"}, "index": 0},
        {"id": "null", "function": {"name": "f", "arguments": None}},
    ]
    message = {"content": "", "tool_calls": calls}
    answer = PROVIDER.read_reply(reply(message, reason="tool_calls"))
    assert answer.choices[0].parts == (
        ToolCall(id="pcZFHqej8", name="f", arguments='{"a":[1,"ü"]}'),
        ToolCall(id="Ah0BFgzqX", name="f", arguments="{}"),
        ToolCall(id="", name="f", arguments=""),
    )
    assert answer.choices[0].finish == "tool_calls"


def test_several_choices() -> None:
    answer = PROVIDER.read_reply(reply({"content": "a"}, {"content": "b"}))
    assert [(one.index, one.parts) for one in answer.choices] == [
        (0, (Text(text="a"),)),
        (1, (Text(text="b"),)),
    ]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("tool_calls", "tool_calls"),
        ("something_new", "stop"),
    ],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    answer = PROVIDER.read_reply(reply({"content": "a"}, reason=reason))
    assert answer.choices[0].finish == finish


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (reply({"content": "a"}, reason="error"), "server"),
        (b'{"object": "error", "message": "oh", "type": "internal_error"}', "server"),
        (b'{"error": {"message": "Prompt too large for model"}}', "context_length"),
        (b'{"detail": "no"}', "server"),
    ],
    ids=range(4),
)
def test_an_answer_that_failed_is_a_failure_and_no_stop(body: bytes, kind: str) -> None:
    with pytest.raises(DamagedReplyError) as raised:
        PROVIDER.read_reply(body)
    assert raised.value.failure is not None
    assert raised.value.failure.kind == kind


@pytest.mark.parametrize(
    ("usage", "lines"),
    [
        (
            {
                "prompt_tokens": 70,
                "completion_tokens": 12,
                "total_tokens": 82,
                "num_cached_tokens": 64,
            },
            TokenUsage(input_tokens=6, cache_read_tokens=64, output_tokens=12),
        ),
        (
            {
                "prompt_tokens": 268,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 224},
            },
            TokenUsage(input_tokens=44, cache_read_tokens=224, output_tokens=5),
        ),
        (
            {
                "prompt_tokens": 4.0,
                "completion_tokens": 33,
                "prompt_audio_seconds": 15,
                "prompt_token_details": {"cached_tokens": 9},
            },
            TokenUsage(cache_read_tokens=4, input_audio_s=15, output_tokens=33),
        ),
        (
            {"prompt_tokens": "x", "completion_tokens": -1, "prompt_audio_seconds": {}},
            None,
        ),
        ({}, None),
        (None, None),
    ],
)
def test_usage(usage: Any, lines: TokenUsage | None) -> None:
    assert PROVIDER.read_reply(reply({"content": "a"}, usage=usage)).usage == lines


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"choices": []}',
        b'{"choices": [3]}',
        b'{"choices": [{"message": {"content": "a"}}]}',
        b'{"choices": [{"index": 1e9, "finish_reason": "stop", "message": {}}]}',
        b'{"choices": [{"index": -1, "finish_reason": "stop", "message": {}}]}',
        reply({}).replace(b'"index": 0', b'"index": 129'),
        reply({}, {}).replace(b'"index": 1', b'"index": 0'),
        reply({"tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]}),
    ],
    ids=range(12),
)
def test_what_is_no_reply_is_damaged(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(body)


_NAMES = [
    "content",
    "type",
    "text",
    "thinking",
    "signature",
    "tool_calls",
    "id",
    "index",
    "function",
    "name",
    "arguments",
    "prompt_tokens",
    "prompt_tokens_details",
    "cached_tokens",
]
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.sampled_from(["text", "thinking", "null"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(message=_JSON, usage=_JSON)
def test_hostile_replies(message: Any, usage: Any) -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    with suppress(DamagedReplyError):
        PROVIDER.read_reply(json.dumps({"choices": [choice], "usage": usage}).encode())


def test_sources_are_of_the_text_since_those_before_them() -> None:
    content: list[dict[str, Any]] = [
        {"type": "reference", "reference_ids": ["a"]},
        {"type": "text", "text": "One"},
        {"type": "reference", "reference_ids": [1, 2, None]},
        {"type": "tool_reference", "tool": "web_search", "title": "T", "url": "https://a.example"},
        {"type": "text", "text": " two"},
        {"type": "reference", "reference_ids": [0]},
        {"type": "reference", "reference_ids": []},
    ]
    answer = PROVIDER.read_reply(reply({"role": "assistant", "content": content}))
    one, two = {"start": 0, "end": 3}, {"start": 3, "end": 7}
    assert answer.choices[0].parts == (
        Text(
            text="One two",
            citations=(
                Citation(document="a"),
                Citation(**one, document="1"),
                Citation(**one, document="2"),
                Citation(**one, url="https://a.example", title="T"),
                Citation(**two, document="0"),
            ),
        ),
        Opaque("mistral", {"type": "reference", "reference_ids": []}),
    )


def test_a_provider_cannot_fill_the_memory_with_references() -> None:
    content = [{"type": "reference", "reference_ids": list(range(10_000))} for _ in range(9)]
    answer = PROVIDER.read_reply(reply({"role": "assistant", "content": content}))
    (part,) = answer.choices[0].parts
    assert isinstance(part, Text) and len(part.citations) == 1000
