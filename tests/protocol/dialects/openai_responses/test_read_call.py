from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.neutral.call import (
    HostedTool,
    Message,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
from headrace.protocol.neutral.carried_id import pack
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.openai_responses.samples import read


def test_a_string_is_a_users_turn() -> None:
    call = read(input="Hello", stream=True)
    assert call.messages == (Message(role="user", parts=(Text(text="Hello"),)),)
    assert call.stream and call.stream_usage and call.model == "m"


def test_parameters() -> None:
    call = read(
        temperature=0.5,
        top_p=1,
        max_output_tokens=64.0,
        top_logprobs=3,
        parallel_tool_calls=False,
        include=["message.output_text.logprobs", "reasoning.encrypted_content", "x.y"],
        metadata={"a": "b"},
        user="u",
        service_tier="flex",
        safety_identifier="s",
        prompt_cache_key="k",
        max_tool_calls=4,
        truncation="auto",
        store=False,
        stream_options={"include_obfuscation": False},
        text={"verbosity": "low"},
    )
    assert (call.temperature, call.top_p, call.max_tokens, call.top_logprobs) == (0.5, 1, 64, 3)
    assert call.logprobs is True and call.thought_signatures is True
    assert call.parallel_tool_calls is False
    assert (call.metadata, call.user, call.service_tier) == ({"a": "b"}, "u", "flex")
    assert call.extra == {
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "max_tool_calls": 4,
        "truncation": "auto",
        "store": False,
        "stream_options": {"include_obfuscation": False},
        "include": ["x.y"],
        "verbosity": "low",
    }


def test_what_is_not_said_is_not_said() -> None:
    call = read()
    assert call.extra == {} and call.temperature is None and call.max_tokens is None
    assert call.logprobs is None and call.thought_signatures is None and not call.stream
    assert call.reasoning is None and call.output is None and call.tools == ()


def test_null_means_absent() -> None:
    assert read(temperature=None, tools=None, text=None, reasoning=None, foo=None) == read()


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, OutputFormat(kind="text")),
        ({"type": "json_object"}, OutputFormat(kind="json")),
        (
            {
                "type": "json_schema",
                "name": "n",
                "schema": {"type": "object"},
                "strict": True,
                "description": "d",
            },
            OutputFormat(
                kind="schema", name="n", schema={"type": "object"}, strict=True, description="d"
            ),
        ),
    ],
)
def test_output_format(form: dict[str, Any], expected: OutputFormat) -> None:
    assert read(text={"format": form}).output == expected


def test_a_format_of_another_kind_is_kept_for_the_provider() -> None:
    call = read(text={"format": {"type": "grammar", "syntax": "lark"}})
    assert call.output is None
    assert call.extra["text"] == {"format": {"type": "grammar", "syntax": "lark"}}


def test_reasoning() -> None:
    call = read(reasoning={"effort": "high", "summary": "auto"})
    assert call.reasoning == Reasoning(effort="high", summary="auto", shown=True)
    assert call.extra == {}


def test_an_effort_that_the_neutral_form_does_not_know_is_kept() -> None:
    call = read(reasoning={"effort": "max", "context": "all_turns"})
    assert call.reasoning is None
    assert call.extra == {"reasoning": {"effort": "max", "context": "all_turns"}}


def test_tools() -> None:
    call = read(
        tools=[
            {
                "type": "function",
                "name": "f",
                "description": "d",
                "parameters": {"type": "object"},
                "strict": True,
                "defer_loading": True,
            },
            {"type": "function", "name": "g", "parameters": None},
            {"type": "web_search", "search_context_size": "low"},
        ],
    )
    assert call.tools == (
        Tool(
            name="f",
            description="d",
            parameters={"type": "object"},
            strict=True,
            extra={"defer_loading": True},
        ),
        Tool(name="g"),
        HostedTool("openai-responses", {"type": "web_search", "search_context_size": "low"}),
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "f"}, ToolChoice("one", "f")),
    ],
)
def test_tool_choice(value: Any, expected: ToolChoice) -> None:
    call = read(tool_choice=value)
    assert call.tool_choice == expected and call.extra == {}


def test_a_choice_among_tools_of_the_provider_is_kept_for_it() -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    call = read(tool_choice=allowed)
    assert call.tool_choice is None and call.extra == {"tool_choice": allowed}


def test_instructions_and_system_messages_before_the_first_turn() -> None:
    call = read(
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "Be kind."},
            {"role": "system", "content": [{"type": "input_text", "text": "Be exact."}]},
            {"role": "user", "content": "Hi"},
            {"role": "developer", "content": "Now in French."},
        ],
    )
    assert call.instructions == (
        Text(text="Be brief."),
        Text(text="Be kind.", extra={"role": "developer"}),
        Text(text="Be exact.", extra={"role": "system"}),
    )
    assert call.messages == (
        Message(role="user", parts=(Text(text="Hi"),)),
        Message(role="user", parts=(Text(text="Now in French."),), extra={"role": "developer"}),
    )


def test_content_of_a_user() -> None:
    call = read(
        input=[
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                    {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
                    {"type": "input_image", "file_id": "file_1", "detail": "auto"},
                    {
                        "type": "input_file",
                        "filename": "a.pdf",
                        "file_data": "data:application/pdf;base64,BBBB",
                    },
                    {"type": "input_file", "file_data": "CCCC"},
                    {"type": "input_file", "file_url": "https://x/y.pdf"},
                    {"type": "input_file", "file_id": "file_2"},
                    {"type": "input_audio", "input_audio": {"data": "DDDD", "format": "mp3"}},
                    {
                        "type": "input_text",
                        "text": "b",
                        "prompt_cache_breakpoint": {"mode": "explicit"},
                    },
                    {"type": "computer_screenshot", "file_id": "f"},
                ],
            }
        ]
    )
    breakpoint = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    assert call.messages[0].parts == (
        Text(text="a"),
        Media(kind="image", mime="image/png", data="AAAA"),
        Media(kind="image", url="https://x/y.png", detail="low"),
        Media(kind="image", file_id="file_1", detail="auto"),
        Media(kind="document", mime="application/pdf", data="BBBB", name="a.pdf"),
        Media(kind="document", data="CCCC"),
        Media(kind="document", url="https://x/y.pdf"),
        Media(kind="document", file_id="file_2"),
        Media(kind="audio", mime="audio/mpeg", data="DDDD"),
        Text(text="b", cache=CacheMark(), extra=breakpoint),
        Opaque(
            "openai-responses",
            {"content_part": {"type": "computer_screenshot", "file_id": "f"}},
        ),
    )


def test_items_of_the_model_are_one_turn() -> None:
    call = read(
        input=[
            {"role": "user", "content": "Hi"},
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "t"}],
                "encrypted_content": "gAAA",
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [
                    {"type": "output_text", "text": "One.", "annotations": []},
                    {"type": "refusal", "refusal": "No."},
                ],
            },
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "1"},
            {
                "type": "function_call_output",
                "call_id": "call_2",
                "output": [
                    {"type": "input_text", "text": "2"},
                    {"type": "input_image", "image_url": "https://x"},
                ],
            },
            {"role": "assistant", "content": "Done."},
        ]
    )
    assert [one.role for one in call.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert call.messages[1].parts == (
        Thinking(text="s", summary=True, id="rs_1"),
        Thinking(text="t", id="rs_1"),
        Thinking(text="", redacted=True, signature=Signature("openai", "gAAA"), id="rs_1"),
        Text(text="One.", extra={"item_id": "msg_1", "phase": "commentary"}),
        Refusal("No."),
        Opaque(
            "openai-responses", {"type": "web_search_call", "id": "ws_1", "status": "completed"}
        ),
        ToolCall(id="call_1", name="f", arguments="{}", extra={"item_id": "fc_1"}),
        ToolCall(id="call_2", name="g", arguments="{}"),
    )
    assert call.messages[2].parts == (ToolResult(call_id="call_1", content=(Text(text="1"),)),)
    assert call.messages[3].parts == (
        ToolResult(
            call_id="call_2", content=(Text(text="2"), Media(kind="image", url="https://x"))
        ),
    )
    assert call.messages[4].parts == (Text(text="Done."),)


def test_signatures_of_other_vendors_come_back_to_them() -> None:
    carried = pack("call_1", Signature("gemini", "sig"))
    late = pack("call_2", Signature("gemini", "late"))
    call = read(
        input=[
            {
                "type": "reasoning",
                "id": "rs_hr_x_0",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "hm"}],
                "encrypted_content": "headrace:anthropic:abc:def==",
            },
            {
                "type": "reasoning",
                "id": "rs_hr_x_1",
                "summary": [],
                "encrypted_content": "headrace:anthropic:hidden",
            },
            {"role": "assistant", "content": "Text", "id": "msg_hr_x_2"},
            {
                "type": "reasoning",
                "id": "rs_hr_x_3",
                "summary": [],
                "encrypted_content": "headrace:text:gemini:t",
            },
            {"type": "function_call", "call_id": carried, "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "call_2", "name": "f", "arguments": "{}"},
            {"type": "reasoning", "summary": [], "encrypted_content": f"headrace:call:{late}"},
            {"type": "function_call_output", "call_id": carried, "output": ""},
        ]
    )
    assert call.messages[0].parts == (
        Thinking(text="hm", signature=Signature("anthropic", "abc:def==")),
        Thinking(text="", redacted=True, signature=Signature("anthropic", "hidden")),
        Text(text="Text", signature=Signature("gemini", "t")),
        ToolCall(id="call_1", name="f", arguments="{}", signature=Signature("gemini", "sig")),
        ToolCall(id="call_2", name="f", arguments="{}", signature=Signature("gemini", "late")),
    )
    assert call.messages[1].parts == (ToolResult(call_id="call_1", content=(Text(text=""),)),)


def test_items_of_openai_alone_are_opaque() -> None:
    items: list[dict[str, Any]] = [
        {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "text"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        {"type": "item_reference", "id": "msg_1"},
        {"id": "msg_2"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
    ]
    call = read(input=items)
    assert [one.role for one in call.messages] == ["assistant", "user", "user", "assistant"]
    parts = [part for one in call.messages for part in one.parts]
    assert parts == [Opaque("openai-responses", one) for one in items]
