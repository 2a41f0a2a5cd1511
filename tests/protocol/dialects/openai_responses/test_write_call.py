from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_responses import PROVIDER
from headrace.protocol.neutral.call import (
    ChatCall,
    HostedTool,
    Message,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
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
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.openai_responses.samples import foreign, read, said, written

pytestmark = pytest.mark.usefixtures("api_descriptions")

OPENAI = Signature("openai", "gAAA")


def user(*parts: Any) -> Message:
    return Message(role="user", parts=parts)


def test_nothing_is_put_in_that_was_not_asked() -> None:
    sent = PROVIDER.write_call(foreign(), "gpt-5")
    assert json.loads(sent.body) == {
        "model": "gpt-5",
        "input": [{"role": "user", "content": "Hi"}],
    }
    assert (sent.path, sent.dropped) == ("/responses", ())


FULL = foreign(
    Message(role="user", parts=(Text(text="a"), Media(kind="image", mime="image/png", data="AA"))),
    said(
        Thinking(text="s", signature=OPENAI, id="rs_1"),
        Text(text="One."),
        ToolCall(id="c1", name="f", arguments="{}"),
        ToolCall(id="c2", name="f", arguments='{"x":1}'),
    ),
    Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text="1"),)),)),
    Message(
        role="tool",
        parts=(
            ToolResult(
                call_id="c2", content=(Text(text="2"), Media(kind="image", url="https://x"))
            ),
        ),
    ),
    Message(role="user", parts=(Text(text="Now."),), extra={"role": "system"}),
    user(
        Media(kind="document", mime="application/pdf", data="BB", name="a.pdf"),
        Media(kind="document", url="https://x/a.pdf", name="a.pdf"),
    ),
    instructions=(Text(text="Be brief."), Text(text="Be kind.")),
    tools=(Tool(name="f", description="d", parameters={"type": "object"}), Tool(name="g")),
    tool_choice=ToolChoice("one", "f"),
    parallel_tool_calls=False,
    max_tokens=100,
    temperature=0.5,
    top_p=0.9,
    logprobs=True,
    top_logprobs=2,
    output=OutputFormat(kind="schema", schema={"type": "object"}, name="n", strict=True),
    reasoning=Reasoning(effort="low", shown=True),
    user="u",
    metadata={"a": "b"},
    service_tier="flex",
    stream=True,
)


def test_all_that_the_dialect_can_say() -> None:
    sent = PROVIDER.write_call(FULL, "gpt-5")
    assert sent.dropped == ()
    assert json.loads(sent.body) == {
        "model": "gpt-5",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "a"},
                    {
                        "type": "input_image",
                        "image_url": "data:image/png;base64,AA",
                        "detail": "auto",
                    },
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "s"}],
                "encrypted_content": "gAAA",
            },
            {"role": "assistant", "content": "One."},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": '{"x":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [
                    {"type": "input_text", "text": "2"},
                    {"type": "input_image", "image_url": "https://x", "detail": "auto"},
                ],
            },
            {"role": "system", "content": "Now."},
            {
                "role": "user",
                "content": [
                    {
                        "type": "input_file",
                        "file_data": "data:application/pdf;base64,BB",
                        "filename": "a.pdf",
                    },
                    {"type": "input_file", "file_url": "https://x/a.pdf"},
                ],
            },
        ],
        "instructions": "Be brief.\n\nBe kind.",
        "tools": [
            {
                "type": "function",
                "name": "f",
                "description": "d",
                "parameters": {"type": "object"},
                "strict": False,
            },
            {
                "type": "function",
                "name": "g",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            },
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "max_output_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_logprobs": 2,
        "text": {
            "format": {
                "type": "json_schema",
                "name": "n",
                "schema": {"type": "object"},
                "strict": True,
            }
        },
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "metadata": {"a": "b"},
        "user": "u",
        "service_tier": "flex",
        "stream": True,
    }


def test_requests_are_as_openai_describes_them() -> None:
    for call in (foreign(), FULL):
        assert_as_described(written(call), "openai/openapi.yaml", "/responses")


@pytest.mark.parametrize(
    ("fields", "dropped"),
    [
        ({"seed": 0}, ("seed",)),
        ({"top_k": 1, "min_p": 0.1}, ("min_p", "top_k")),
        (
            {"frequency_penalty": 0.0, "presence_penalty": 1},
            ("frequency_penalty", "presence_penalty"),
        ),
        ({"repetition_penalty": 1.1}, ("repetition_penalty",)),
        ({"logit_bias": {"1": 2}, "stop": ("x",)}, ("logit_bias", "stop")),
        ({"choices": 2}, ("choices",)),
        ({"max_tokens": 15}, ("max_tokens",)),
        ({"max_tokens": 16}, ()),
        ({"service_tier": "batch"}, ("service_tier",)),
        ({"service_tier": "standard_only"}, ()),
        ({"choices": 1, "modalities": ("text",)}, ()),
        ({"modalities": ("text", "audio")}, ("modalities",)),
        ({"reasoning": Reasoning(budget_tokens=1000)}, ()),
        ({"reasoning": Reasoning(budget_tokens=0)}, ()),
        ({"extra": {"top_a": 1, "store": True}}, ("extra.store", "extra.top_a")),
        ({"tools": (HostedTool("anthropic", {"type": "bash_1"}),)}, ("tools.bash_1",)),
        ({"instructions": (Text(text="x", cache=CacheMark()),)}, ("messages.cache",)),
    ],
)
def test_what_the_dialect_cannot_say_is_told(
    fields: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    assert PROVIDER.write_call(foreign(**fields), "m").dropped == dropped


def test_the_least_that_the_api_takes() -> None:
    assert written(foreign(max_tokens=1))["max_output_tokens"] == 16
    assert written(read(max_output_tokens=1))["max_output_tokens"] == 1
    assert written(foreign(service_tier="standard_only"))["service_tier"] == "default"


def test_what_messages_cannot_say_is_told() -> None:
    call = foreign(
        Message(role="user", name="Ann", parts=(Text(text="x"), Opaque("anthropic", {"a": 1}))),
        Message(
            role="tool",
            parts=(ToolResult(call_id="c", content=(Text(text="x"),), is_error=True),),
        ),
    )
    sent = PROVIDER.write_call(call, "m")
    assert sent.dropped == ("messages.anthropic", "messages.is_error", "messages.name")


def test_fields_that_only_another_dialect_knows_are_told() -> None:
    call = foreign(
        Message(
            role="user",
            parts=(
                Text(text="x", extra={"citations": []}),
                Media(kind="image", url="u", extra={"a": 1}),
            ),
            extra={"role": "system", "weight": 1},
        ),
        said(ToolCall(id="c", name="f", arguments="{}", extra={"caller": {}})),
        tools=(Tool(name="f", extra={"examples": []}),),
    )
    assert PROVIDER.write_call(call, "m").dropped == (
        "messages.extra.weight",
        "messages.media.a",
        "messages.text.citations",
        "messages.tool_calls.caller",
        "tools.extra.examples",
    )


def test_fields_of_openais_chat_are_kept() -> None:
    extra = {"store": True, "verbosity": "low", "prompt_cache_key": "k", "prediction": {}}
    call = ChatCall(dialect="openai-chat", model="m", messages=foreign().messages, extra=extra)
    sent = PROVIDER.write_call(call, "m")
    assert json.loads(sent.body) == {
        "model": "m",
        "input": [{"role": "user", "content": "Hi"}],
        "store": True,
        "text": {"verbosity": "low"},
        "prompt_cache_key": "k",
    }
    assert sent.dropped == ("extra.prediction",)


def test_a_refusal_is_given_back_as_one() -> None:
    call = foreign(said(Text(text="Well."), Refusal("No.")))
    assert written(call)["input"] == [
        {"role": "assistant", "content": "Well."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]


@pytest.mark.parametrize(
    "message",
    [
        user(Media(kind="image", file_id="file_1")),
        user(Media(kind="video", mime="video/mp4", data="AA")),
        user(Media(kind="audio", url="https://x")),
        user(Media(kind="audio", mime="audio/wav", data="AA")),
        user(Media(kind="audio", mime="audio/flac", data="AA")),
        said(Media(kind="image", mime="image/png", data="AA")),
        Message(
            role="tool",
            parts=(
                ToolResult(
                    call_id="c", content=(Media(kind="audio", mime="audio/wav", data="AA"),)
                ),
            ),
        ),
    ],
)
def test_media_that_the_api_has_no_place_for(message: Message) -> None:
    with pytest.raises(RequestError) as caught:
        PROVIDER.write_call(foreign(message), "m")
    assert caught.value.param == "messages[0]"


ITEMS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {
                "type": "input_image",
                "image_url": "https://x",
                "detail": "original",
                "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"},
            },
            {"type": "input_file", "file_data": "AAAA", "filename": "a.bin", "detail": "low"},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "future_part", "x": [1]},
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
        "content": [{"type": "reasoning_text", "text": "c"}],
        "encrypted_content": "gAAA",
    },
    {"type": "reasoning", "id": "rs_2", "summary": []},
    {"type": "reasoning", "id": "rs_3", "summary": [{"type": "summary_text", "text": "a"}]},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "final_answer",
        "content": [
            {
                "type": "output_text",
                "text": "One.",
                "annotations": [{"type": "file_path", "file_id": "f", "index": 1}],
            },
            {"type": "output_text", "text": "Two.", "annotations": []},
        ],
    },
    {
        "type": "message",
        "id": "msg_2",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Three.", "annotations": []}],
    },
    {"role": "assistant", "content": "Four.", "phase": "commentary"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c",
        "name": "f",
        "arguments": "{}",
        "namespace": "n",
    },
    {"type": "function_call_output", "call_id": "c", "output": "1", "id": "fco_1"},
    {"type": "custom_tool_call", "call_id": "d", "name": "n", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "d", "output": "y"},
    {"type": "item_reference", "id": "msg_9"},
    {"role": "system", "content": "Now."},
]


def test_a_request_of_this_dialect_comes_out_as_it_went_in() -> None:
    body = {
        "model": "m",
        "input": ITEMS,
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "f",
                "parameters": {"type": "object", "properties": {}},
                "strict": None,
                "defer_loading": True,
            },
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
        "text": {"format": {"type": "json_object"}, "verbosity": "low", "future": 1},
        "reasoning": {"effort": "max", "summary": "auto", "mode": "pro"},
        "include": ["file_search_call.results", "reasoning.encrypted_content"],
        "previous_response_id": "resp_1",
        "background": True,
        "conversation": "conv_1",
        "prompt": {"id": "p"},
        "store": False,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "truncation": "auto",
        "max_tool_calls": 2,
        "future_field": {"deep": [1, None]},
        "temperature": 1,
        "top_logprobs": 0,
    }
    sent = PROVIDER.write_call(read(**body), "m")
    expected = {**body, "tools": [dict(body["tools"][0]), body["tools"][1]]}  # type: ignore[index, arg-type]
    del expected["tools"][0]["strict"]  # null says nothing
    assert json.loads(sent.body) == expected
    assert sent.dropped == ()


def test_ids_that_we_made_are_not_sent_to_a_provider() -> None:
    items = [
        {"type": "reasoning", "id": "rs_hr_a_0", "summary": [], "encrypted_content": "gAAA"},
        {
            "type": "message",
            "id": "msg_hr_a_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_hr_a_2",
            "call_id": "c",
            "name": "f",
            "arguments": "{}",
        },
    ]
    assert written(read(input=items))["input"] == [
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
        {"role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
