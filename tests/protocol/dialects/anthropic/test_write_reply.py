"""Replies of other dialects, and damaged ones of this."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.dialects.anthropic import CLIENT, PROVIDER
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish
from headrace.protocol.neutral.usage import TokenUsage

CALL = ChatCall(dialect="anthropic", model="m", messages=())


def reply(*parts: Part, **fields: Any) -> dict[str, Any]:
    choice = Choice(parts=parts, **fields)
    whole = ChatReply(dialect="openai_chat", id="r", model="gpt", choices=(choice,))
    body: dict[str, Any] = json.loads(CLIENT.write_reply(whole, CALL))
    return body


def back(body: dict[str, Any]) -> tuple[Part, ...]:
    """What a client that sends the answer's content back says with it."""
    message = {"role": "assistant", "content": body["content"]}
    request = {"model": "m", "max_tokens": 1, "messages": [message]}
    call = CLIENT.read_call(json.dumps(request).encode(), "/v1/messages", {})
    return call.messages[0].parts


def test_the_shape_of_a_message() -> None:
    usage = TokenUsage(
        input_tokens=1,
        cache_read_tokens=2,
        cache_write_tokens=3,
        cache_write_1h_tokens=4,
        input_audio_tokens=5,
        output_tokens=6,
        reasoning_tokens=7,
        output_audio_tokens=8,
    )
    choice = Choice(parts=(Text(text="a"), Refusal("no")), finish="stop", stop_sequence="END")
    whole = ChatReply(
        dialect="openai_chat",
        id="chatcmpl-1",
        model="gpt",
        choices=(choice, Choice(index=1)),
        usage=usage,
        service_tier="default",
    )
    assert json.loads(CLIENT.write_reply(whole, CALL)) == {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "model": "gpt",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "no"}],
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
        "usage": {
            "input_tokens": 6,
            "cache_creation_input_tokens": 7,
            "cache_read_input_tokens": 2,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
            "output_tokens": 21,
            "output_tokens_details": {"thinking_tokens": 7},
            "service_tier": "standard",
        },
    }


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("content_filter", "refusal"),
        ("pause", "pause_turn"),
        (None, None),
    ],
)
def test_finish(finish: Finish | None, reason: str | None) -> None:
    assert reply(Text(text="a"), finish=finish)["stop_reason"] == reason


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("model_context_window_exceeded", "length"),
        ("compaction", "pause"),
        ("something_new", "stop"),
    ],
)
def test_reasons_that_are_more_than_a_finish_come_back(word: str, finish: str) -> None:
    raw = {"id": "m", "type": "message", "model": "x", "content": [], "stop_reason": word}
    read = PROVIDER.read_reply(json.dumps(raw).encode())
    assert read.choices[0].finish == finish
    assert json.loads(CLIENT.write_reply(read, CALL))["stop_reason"] == word


def test_agents_are_told_of_tools_whatever_the_provider_says() -> None:
    assert reply(ToolCall(id="1", name="f", arguments=""), finish="stop")["stop_reason"] == (
        "tool_use"
    )


def test_signatures_of_others_survive_the_client() -> None:
    parts = (
        Thinking(text="a", signature=Signature("gemini", "G:/+=1")),
        Thinking(text="b", signature=Signature("openai", "E"), summary=True, id="rs:1;x"),
        Thinking(text="c", signature=Signature("anthropic", "S")),
        Thinking(text="d", signature=Signature("anthropic", "headrace:gemini:x")),
        Thinking(text="e"),
        Thinking(text="f", id="rs_2"),
        Thinking(text="", signature=Signature("openai", "E"), redacted=True, id="rs_3"),
        ToolCall(id="call_1", name="f", arguments="{}", signature=Signature("gemini", "T")),
        ToolCall(id="call_2", name="f", arguments='{"a": '),
    )
    body = reply(*parts, finish="tool_calls")
    assert body["content"][0]["signature"] == "headrace:gemini:G:/+=1"
    assert body["content"][2]["signature"] == "S"
    assert back(body) == parts


def test_what_has_no_block_is_left_out() -> None:
    body = reply(
        Opaque("gemini", {"executableCode": {}}),
        Media(kind="audio", data="AA==", mime="audio/wav"),
        Thinking(text="", redacted=True),
        Media(kind="image", data="AA==", mime="image/png"),
        Text(text="a", extra={"annotations": [1], "citations": [{"start": 1, "end": 2}]}),
    )
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    assert body["content"] == [{"type": "image", "source": source}, {"type": "text", "text": "a"}]


def test_fields_of_other_dialects_stay_out() -> None:
    body = reply(Text(text="a"), finish="stop", extra={"content_filter_results": {}, "usage": 1})
    assert body.keys() == {
        "id",
        "type",
        "role",
        "model",
        "content",
        "stop_reason",
        "stop_sequence",
        "usage",
    }


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (None, None),
        ({}, None),
        ("many", None),
        ({"input_tokens": "3", "output_tokens": None}, None),
        ({"input_tokens": -3, "output_tokens": 4.0}, None),
        ({"input_tokens": 3, "output_tokens": 4.0}, TokenUsage(input_tokens=3, output_tokens=4)),
        ({"input_tokens": 1e300, "output_tokens": True}, None),
        (
            {"input_tokens": 1, "cache_creation_input_tokens": 5, "output_tokens": 2},
            TokenUsage(input_tokens=1, cache_write_tokens=5, output_tokens=2),
        ),
        (
            {
                "input_tokens": 1,
                "cache_creation_input_tokens": 5,
                "cache_creation": {"ephemeral_1h_input_tokens": 3, "ephemeral_5m_input_tokens": 2},
                "output_tokens": 2,
                "output_tokens_details": {"thinking_tokens": 9},
            },
            TokenUsage(
                input_tokens=1,
                cache_write_tokens=2,
                cache_write_1h_tokens=3,
                reasoning_tokens=2,
            ),
        ),
    ],
)
def test_usage(raw: Any, usage: TokenUsage | None) -> None:
    message = {"id": "m", "type": "message", "model": "x", "content": [], "usage": raw}
    assert PROVIDER.read_reply(json.dumps(message).encode()).usage == usage


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"<html>",
        b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}',
        b'{"content":"text"}',
        b'{"content":[1]}',
        b'{"content":[{"text":"a"}]}',
        b'{"content":[{"type":"tool_use","id":"","name":"f"}]}',
        b'{"content":[{"type":"tool_use","id":"a","name":3}]}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
    ids=str,
)
def test_damaged_replies(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(body)
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_token_count(body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("type", "text", "content", "usage", "input", "id", "source")), inner
        )
    ),
    max_leaves=10,
)
_KINDS = ("text", "tool_use", "thinking", "redacted_thinking", "image", "odd")


@pytest.mark.long
@given(
    st.lists(st.dictionaries(st.sampled_from(("text", "id", "name", "input", "data")), _JSON)),
    st.lists(st.sampled_from(_KINDS)),
    _JSON,
)
def test_no_reply_raises_anything_else(
    blocks: list[dict[str, Any]], kinds: list[str], value: Any
) -> None:
    content = [block | {"type": kind} for block, kind in zip(blocks, kinds, strict=False)]
    message = {"content": content, "usage": value, "stop_reason": value, "id": value}
    try:
        read = PROVIDER.read_reply(json.dumps(message).encode())
    except DamagedReplyError:
        return
    CLIENT.write_reply(read, CALL)
