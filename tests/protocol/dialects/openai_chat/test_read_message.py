"""Conversations as clients write them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.neutral.call import Message
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.openai_chat.samples import USER, read

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}


def parts_of(*messages: dict[str, Any]) -> tuple[Part, ...]:
    """Parts of the last message."""
    return read(messages=list(messages)).messages[-1].parts


def test_instructions_before_the_first_turn() -> None:
    call = read(
        messages=[
            {"role": "system", "content": "A"},
            {"role": "developer", "content": [{"type": "text", "text": "B"}], "name": "dev"},
            USER,
            {"role": "system", "content": "later"},
        ]
    )
    assert call.instructions == (
        Text(text="A"),
        Text(text="B", extra={"role": "developer", "name": "dev"}),
    )
    assert call.messages == (
        Message(role="user", parts=(Text(text="Hi"),)),
        Message(role="user", parts=(Text(text="later"),), extra={"role": "system"}),
    )


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ({"type": "text", "text": "a", "zz": 1}, Text(text="a", extra={"zz": 1})),
        (
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            Text(text="a", cache=CacheMark("1h")),
        ),
        (
            {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
            Text(text="a", cache=CacheMark()),
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            Media(kind="image", url="https://x/y.png", detail="low"),
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            Media(kind="image", mime="image/png", data="AAAA"),
        ),
        ({"type": "image_url", "image_url": "https://x"}, Media(kind="image", url="https://x")),
        (
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
            Media(kind="audio", mime="audio/mpeg", data="AA=="),
        ),
        (
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
            },
            Media(kind="document", mime="application/pdf", data="AA==", name="a.pdf"),
        ),
        ({"type": "file", "file": {"file_id": "f1"}}, Media(kind="document", file_id="f1")),
        (
            {"type": "video_url", "video_url": {"url": "https://v"}},
            Media(kind="video", url="https://v"),
        ),
        ({"type": "zz", "a": 1}, Opaque("openai-chat", {"type": "zz", "a": 1})),
    ],
)
def test_parts_of_content(part: dict[str, Any], wanted: Part) -> None:
    assert parts_of({"role": "user", "content": [part]}) == (wanted,)


def test_an_assistant_that_thought_refused_and_called() -> None:
    message = {
        "role": "assistant",
        "content": "",
        "refusal": "No.",
        "reasoning_content": "Hm.",
        "tool_calls": [CALL],
        "audio": {"id": "audio_1"},
        "zz": 1,
    }
    call = read(messages=[USER, message])
    assert call.messages[-1] == Message(
        role="assistant",
        parts=(
            Thinking(text="Hm."),
            Refusal("No."),
            Media(kind="audio", file_id="audio_1"),
            ToolCall(id="c1", name="look", arguments='{"a":1}'),
        ),
        extra={"zz": 1},
    )


def test_arguments_that_are_an_object_become_text() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": {"a": [1]}}}
    assert parts_of(USER, {"role": "assistant", "tool_calls": [call]}) == (
        ToolCall(id="c", name="f", arguments='{"a":[1]}'),
    )


def test_signatures_of_all_origins() -> None:
    signed = {**CALL, "extra_content": {"google": {"thought_signature": "G"}}}
    other = {
        **CALL,
        "id": "c2",
        "extra_content": {"headrace": {"origin": "mistral", "value": "M"}},
    }
    details = [
        {"type": "reasoning.text", "text": "a", "signature": "S", "format": "anthropic-claude-v1"},
        {"type": "reasoning.encrypted", "data": "E", "format": "openai-responses-v1", "id": "rs"},
        {"type": "reasoning.summary", "summary": "s"},
    ]
    message = {"role": "assistant", "tool_calls": [signed, other], "reasoning_details": details}
    assert parts_of(USER, message) == (
        Thinking(text="a", signature=Signature("anthropic", "S")),
        Thinking(text="", signature=Signature("openai", "E"), redacted=True, id="rs"),
        Thinking(text="s", summary=True),
        ToolCall(id="c1", name="look", arguments='{"a":1}', signature=Signature("gemini", "G")),
        ToolCall(id="c2", name="look", arguments='{"a":1}', signature=Signature("mistral", "M")),
    )


def test_hidden_thoughts_of_gemini_are_their_calls_signature() -> None:
    detail = {
        "type": "reasoning.encrypted",
        "data": "G",
        "format": "google-gemini-v1",
        "id": "c1",
        "index": 0,
    }
    message = {"role": "assistant", "tool_calls": [CALL], "reasoning_details": [detail]}
    assert parts_of(USER, message) == (
        ToolCall(id="c1", name="look", arguments='{"a":1}', signature=Signature("gemini", "G")),
    )


def test_details_kept_piece_by_piece_become_one() -> None:
    details = [
        {"type": "reasoning.text", "text": "a", "index": 0, "format": "anthropic-claude-v1"},
        {"type": "reasoning.text", "text": "b", "index": 0, "format": "anthropic-claude-v1"},
        {
            "type": "reasoning.text",
            "signature": "S",
            "index": 0,
            "format": "anthropic-claude-v1",
        },
        {"type": "reasoning.text", "text": "c", "index": 1},
    ]
    message = {"role": "assistant", "content": "x", "reasoning_details": details}
    assert parts_of(USER, message)[:2] == (
        Thinking(text="ab", signature=Signature("anthropic", "S")),
        Thinking(text="c"),
    )


def test_results_of_tools_and_of_functions() -> None:
    call = read(
        messages=[
            USER,
            {"role": "assistant", "content": None, "function_call": CALL["function"]},
            {"role": "function", "name": "look", "content": "seen"},
            {"role": "tool", "tool_call_id": "c9", "content": [{"type": "text", "text": "t"}]},
        ]
    )
    made = call.messages[1].parts[0]
    assert isinstance(made, ToolCall) and made.id
    assert call.messages[2].parts == (
        ToolResult(call_id=made.id, name="look", content=(Text(text="seen"),)),
    )
    assert call.messages[3].parts == (ToolResult(call_id="c9", content=(Text(text="t"),)),)


def test_a_custom_tools_call_is_kept_as_it_is() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select"}}
    assert parts_of(USER, {"role": "assistant", "tool_calls": [custom]}) == (
        Opaque("openai-chat", custom),
    )
