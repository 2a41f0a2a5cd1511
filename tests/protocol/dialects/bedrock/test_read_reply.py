"""Whole answers of Converse, hand-written: each kind of block, usage, damage."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.bedrock import PROVIDER
from headrace.protocol.dialects.bedrock.reply.usage import read_usage
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Media, Opaque, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from headrace.protocol.neutral.usage import TokenUsage

USAGE = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}


def _body(*content: Any, **fields: Any) -> bytes:
    message = {"role": "assistant", "content": list(content)}
    whole = {"output": {"message": message}, "stopReason": "end_turn", "usage": USAGE}
    return json.dumps({**whole, **fields}).encode()


def _read(*content: Any, **fields: Any) -> ChatReply:
    return PROVIDER.read_reply(_body(*content, **fields))


def _parts(*content: Any) -> tuple[object, ...]:
    return _read(*content).choices[0].parts


def test_each_kind_of_block() -> None:
    use = {"toolUseId": "t", "name": "f", "input": {"a": [1, 2.5, "ü"]}, "type": "tool_use"}
    server = {"toolUseId": "s", "name": "run", "input": {}, "type": "server_tool_use"}
    hidden = base64.b64encode(b"EqQB").decode()
    assert _parts(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "S"}}},
        {"reasoningContent": {"reasoningText": {"text": "so"}}},
        {"reasoningContent": {"redactedContent": hidden}},
        {"text": ""},
        {"text": "yes", "toolUse": None},
        {"toolUse": use},
        {"toolUse": server},
        {"toolResult": {"toolUseId": "s", "content": []}},
        {"image": {"format": "jpeg", "source": {"bytes": "/9j/"}}},
        {"audio": {"format": "mp3", "source": {"bytes": "AAAA"}}},
        {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://b/k"}}}},
        {"somethingNew": {"a": 1}},
    ) == (
        Thinking(text="hm", signature=Signature("anthropic", "S")),
        Thinking(text="so"),
        Thinking(text="", redacted=True, signature=Signature("anthropic", "EqQB")),
        Text(text="yes"),
        ToolCall(id="t", name="f", arguments='{"a":[1,2.5,"ü"]}'),
        Opaque("bedrock", {"toolUse": server}),
        Opaque("bedrock", {"toolResult": {"toolUseId": "s", "content": []}}),
        Media(kind="image", mime="image/jpeg", data="/9j/"),
        Media(kind="audio", mime="audio/mpeg", data="AAAA"),
        Opaque(
            "bedrock", {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://b/k"}}}}
        ),
        Opaque("bedrock", {"somethingNew": {"a": 1}}),
    )


def test_cited_text_is_text() -> None:
    citation = {"title": "a", "location": {"web": {"url": "https://a.example"}}}
    block = {"content": [{"text": "so "}, {"text": "it is"}], "citations": [citation]}
    assert _parts({"citationsContent": block}) == (
        Text(
            text="so it is",
            citations=(Citation(title="a", url="https://a.example"),),
            extra={"bedrock_citations": [citation]},
        ),
    )


def test_arguments_with_numbers_that_are_too_large() -> None:
    assert _parts({"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 2**70}}}) == (
        ToolCall(id="t", name="f", arguments='{"a":1180591620717411303424}'),
    )


def test_hidden_thoughts_that_are_not_anthropics_are_opaque() -> None:
    block = {"reasoningContent": {"redactedContent": base64.b64encode(b"\xff\x00").decode()}}
    assert _parts(block) == (Opaque("bedrock", block),)


def test_fields_beside_the_message() -> None:
    reply = _read(
        {"text": "a"},
        stopReason="stop_sequence",
        additionalModelResponseFields={"stop_sequence": "END"},
        trace={"guardrail": {"x": 1}},
        performanceConfig={"latency": "optimized"},
        serviceTier={"type": "priority"},
        metrics={"latencyMs": 1},
    )
    (choice,) = reply.choices
    assert (choice.finish, choice.stop_sequence) == ("stop", "END")
    assert choice.extra == {
        "additionalModelResponseFields": {"stop_sequence": "END"},
        "trace": {"guardrail": {"x": 1}},
        "performanceConfig": {"latency": "optimized"},
        "stopReason": "stop_sequence",
    }
    assert reply.service_tier == "priority"
    assert reply.dialect == "bedrock"


def test_usage_by_lifetime_of_what_was_cached() -> None:
    details = [{"ttl": "1h", "inputTokens": 60}, {"ttl": "5m", "inputTokens": 40}]
    usage = read_usage(
        {
            "inputTokens": 3,
            "outputTokens": 4,
            "cacheReadInputTokens": 50,
            "cacheWriteInputTokens": 100,
            "cacheDetails": details,
        }
    )
    assert usage == TokenUsage(
        input_tokens=3,
        output_tokens=4,
        cache_read_tokens=50,
        cache_write_tokens=40,
        cache_write_1h_tokens=60,
    )


def test_writes_of_an_hour_are_no_more_than_all_writes() -> None:
    details = [{"ttl": "1h", "inputTokens": 9}, {"ttl": "5m", "inputTokens": 2}]
    cut = read_usage({**USAGE, "cacheWriteInputTokens": 4, "cacheDetails": details})
    assert cut == TokenUsage(input_tokens=3, output_tokens=4, cache_write_1h_tokens=4)
    assert read_usage({**USAGE, "cacheDetails": details}) == TokenUsage(
        input_tokens=3, output_tokens=4, cache_write_tokens=2, cache_write_1h_tokens=9
    )


@pytest.mark.parametrize("value", [True, "3", -1, 1.5, 1e300, 2**70, [], {}])
def test_a_count_that_is_none_makes_usage_unknown(value: object) -> None:
    assert read_usage({"inputTokens": value, "outputTokens": 4}) is None
    assert read_usage({"inputTokens": 4, "outputTokens": value}) is None
    assert read_usage({**USAGE, "cacheReadInputTokens": value}) is None
    assert read_usage({**USAGE, "cacheWriteInputTokens": value}) is None
    detail = {"ttl": "1h", "inputTokens": value}
    assert read_usage({**USAGE, "cacheDetails": [detail]}) is None
    assert read_usage(value) is None


@pytest.mark.parametrize("value", [None, 0, [], {}])
def test_what_is_not_told_of_a_cache_is_none_of_it(value: object) -> None:
    assert read_usage({"inputTokens": None, "outputTokens": 4}) is None
    usage = read_usage({**USAGE, "cacheDetails": value})
    assert usage == TokenUsage(input_tokens=3, output_tokens=4)
    assert read_usage({**USAGE, "cacheReadInputTokens": None}) == usage
    assert read_usage({"inputTokens": 3.0, "outputTokens": 4}) == usage


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_what_the_model_failed_to_write_is_no_answer(reason: str) -> None:
    with pytest.raises(DamagedReplyError, match=reason):
        _read({"text": "a"}, stopReason=reason)


DAMAGED = [
    b"",
    b"<html>",
    b"[]",
    b"null",
    b"{}",
    b"\xff",
    b"[" * 100_000,
    b'{"output": {"message": {}}}',
    b'{"output": {"message": {"content": {}}}}',
    _body(5),
    _body({"text": 5}),
    _body({"toolUse": 5}),
    _body({"toolUse": {"toolUseId": "t", "input": {}}}),
    _body({"toolUse": {"name": "", "toolUseId": "t"}}),
    _body({"toolUse": {"name": "f", "toolUseId": 5}}),
    _body({"reasoningContent": []}),
    _body({"reasoningContent": {"reasoningText": {"text": None}}}),
    _body({"reasoningContent": {"redactedContent": "?"}}),
    _body({"reasoningContent": {"redactedContent": 5}}),
    _body({"citationsContent": 5}),
    _body({"image": {"format": "png"}}),
    _body({"text": "a"}, stopReason=None),
    _body({"text": "a"}, stopReason=5),
]


@pytest.mark.parametrize("body", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_replies(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(body)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["text", "toolUse", "name", "input", "reasoningContent", "image", "source"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES, VALUES)
def test_any_content_is_read_or_damaged(block: Any, usage: Any, native: Any) -> None:
    body = _body(block, usage=usage, additionalModelResponseFields=native, serviceTier=native)
    try:
        reply = PROVIDER.read_reply(body)
    except DamagedReplyError:
        return
    assert len(reply.choices) == 1
