"""Requests for providers, by variant."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_chat import PRESETS, OpenAIChatProvider, azure
from headrace.protocol.neutral.call import ChatCall, Message, OutputFormat, Reasoning, Tool
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
from tests.protocol.dialects.openai_chat.samples import USER, read, written

LOOK = Tool(name="look", parameters={"type": "object"})


def foreign(*messages: Message, **fields: Any) -> ChatCall:
    """A call that was read from another dialect."""
    hello = (Message(role="user", parts=(Text(text="Hi"),)),)
    return ChatCall(dialect="anthropic", model="m", messages=messages or hello, **fields)


def assistant(*parts: Part) -> Message:
    """An assistant's turn."""
    return Message(role="assistant", parts=parts)


def test_what_is_not_said_is_not_written() -> None:
    assert written(read()) == ({"model": "theirs", "messages": [USER]}, ())


FULL: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "A", "zz": 1},
        {
            "role": "developer",
            "name": "dev",
            "content": [{"type": "text", "text": "B"}, {"type": "text", "text": "C", "zz": 2}],
        },
        {
            "role": "user",
            "name": "bob",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "https://x", "detail": "high"}},
                {
                    "type": "image_url",
                    "image_url": {"url": "data:image/png;base64,AAAA", "zz": 3},
                    "uuid": "u",
                },
                {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                {"type": "file", "file": {"file_id": "f1"}},
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
                },
            ],
        },
        {
            "role": "assistant",
            "content": "Looking",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"a": 1}'},
                },
                {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        {
            "role": "tool",
            "tool_call_id": "c2",
            "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}],
        },
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "system", "content": "late"},
        {"role": "user", "content": "so?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "d",
                "parameters": {"type": "object"},
                "strict": True,
            },
        },
        {"type": "custom", "custom": {"name": "sql"}},
    ],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "parallel_tool_calls": False,
    "max_completion_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "logit_bias": {"5": 1},
    "seed": 7,
    "stop": ["a", "b"],
    "n": 2,
    "logprobs": True,
    "top_logprobs": 2,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    },
    "reasoning_effort": "low",
    "modalities": ["text"],
    "user": "u",
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "store": True,
    "prediction": {"type": "content", "content": "x"},
}


def test_a_round_trip_changes_the_model_alone() -> None:
    body, dropped = written(read(**FULL))
    assert body == {**FULL, "model": "theirs"}
    assert dropped == ()


def test_usage_is_asked_for_in_every_stream() -> None:
    assert written(read(stream=True))[0]["stream_options"] == {"include_usage": True}
    assert "stream_options" not in written(read())[0]


@pytest.mark.parametrize(
    ("variant", "field"),
    [("openai", "max_completion_tokens"), ("deepseek", "max_tokens"), ("vllm", "max_tokens")],
)
def test_the_name_of_most_tokens(variant: str, field: str) -> None:
    body, _ = written(read(max_tokens=3), variant)
    assert body[field] == 3
    assert len({"max_tokens", "max_completion_tokens"} & body.keys()) == 1


def test_what_a_variant_does_not_take_is_named() -> None:
    body, dropped = written(
        read(top_k=4, min_p=0.1, repetition_penalty=1.1, thinking={"type": "enabled"})
    )
    assert set(dropped) == {"top_k", "min_p", "repetition_penalty", "extra.thinking"}
    assert body == {"model": "theirs", "messages": [USER]}
    assert written(read(n=1, logprobs=False), "deepseek")[1] == ()
    assert written(read(n=2, seed=1, logit_bias={"1": 1}), "deepseek")[1] == (
        "logit_bias",
        "seed",
        "choices",
    )
    _, dropped = written(foreign(extra={"container": "x"}))
    assert dropped == ("extra.container",)


def test_a_schema_that_cannot_be_said() -> None:
    schema = OutputFormat(kind="schema", schema={"type": "object"})
    assert written(foreign(output=schema))[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": {"type": "object"}},
    }
    body, dropped = written(foreign(output=schema), "deepseek")
    assert "response_format" not in body and dropped == ("output.schema",)


@pytest.mark.parametrize(
    ("variant", "asked", "wanted", "dropped"),
    [
        ("openai", Reasoning(effort="xhigh"), {"reasoning_effort": "xhigh"}, ()),
        (
            "openai",
            Reasoning(budget_tokens=9000),
            {"reasoning_effort": "medium"},
            (),
        ),
        ("openai", Reasoning(budget_tokens=0), {"reasoning_effort": "none"}, ()),
        (
            "xai",
            Reasoning(effort="medium"),
            {"reasoning_effort": "high"},
            ("reasoning.effort",),
        ),
        (
            "openrouter",
            Reasoning(budget_tokens=9000, shown=False),
            {"reasoning": {"max_tokens": 9000, "exclude": True}},
            (),
        ),
        ("openrouter", Reasoning(effort="high"), {"reasoning": {"effort": "high"}}, ()),
        ("deepseek", Reasoning(effort="none"), {"thinking": {"type": "disabled"}}, ()),
        (
            "deepseek",
            Reasoning(effort="high"),
            {"thinking": {"type": "enabled"}},
            ("reasoning.effort",),
        ),
        (
            "vllm",
            Reasoning(effort="none"),
            {"chat_template_kwargs": {"enable_thinking": False}},
            (),
        ),
        (
            "vllm",
            Reasoning(effort="low"),
            {
                "chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"},
                "reasoning_effort": "low",
            },
            (),
        ),
        ("openai", Reasoning(shown=True), {}, ("reasoning.shown",)),
    ],
)
def test_reasoning(
    variant: str, asked: Reasoning, wanted: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    body, told = written(foreign(reasoning=asked), variant)
    assert {k: v for k, v in body.items() if k not in ("model", "messages")} == wanted
    assert told == dropped


def test_words_of_its_own_go_back_to_their_dialect() -> None:
    assert written(read(reasoning_effort="max"))[0]["reasoning_effort"] == "max"
    kwargs = {"chat_template_kwargs": {"enable_thinking": False, "zz": 1}}
    assert written(read(**kwargs), "vllm")[0]["chat_template_kwargs"] == {
        "enable_thinking": False,
        "zz": 1,
    }
    assert written(read(thinking={"type": "enabled"}), "zai")[0]["thinking"] == {"type": "enabled"}


THOUGHTS = assistant(
    Thinking(text="plain"),
    Thinking(text="claude", signature=Signature("anthropic", "S")),
    Thinking(text="", signature=Signature("openai", "E"), redacted=True, id="rs"),
    Text(text="so"),
    ToolCall(id="c1", name="look", arguments="{}", signature=Signature("gemini", "G")),
)


def test_thoughts_go_back_to_whom_they_are_of_use() -> None:
    call = foreign(THOUGHTS, tools=(LOOK,))
    plain, dropped = written(call)
    assert dropped == ()
    assert plain["messages"] == [
        {
            "role": "assistant",
            "content": "so",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            ],
        }
    ]
    assert written(call, "deepseek")[0]["messages"][0]["reasoning_content"] == "plain"
    assert written(call, "openrouter")[0]["messages"][0]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "plain", "index": 0},
        {
            "type": "reasoning.text",
            "text": "claude",
            "signature": "S",
            "format": "anthropic-claude-v1",
            "index": 1,
        },
        {
            "type": "reasoning.encrypted",
            "data": "E",
            "format": "openai-responses-v1",
            "id": "rs",
            "index": 2,
        },
        {
            "type": "reasoning.encrypted",
            "data": "G",
            "format": "google-gemini-v1",
            "id": "c1",
            "index": 3,
        },
    ]
    google = written(call, "google")[0]["messages"][0]["tool_calls"][0]
    assert google["extra_content"] == {"google": {"thought_signature": "G"}}


def test_deepseek_wants_thoughts_where_tools_were_called() -> None:
    call = ToolCall(id="c1", name="look", arguments="{}")
    body, _ = written(foreign(assistant(call), assistant(Text(text="a"))), "deepseek")
    assert body["messages"][0]["reasoning_content"] == ""
    assert "reasoning_content" not in body["messages"][1]
    assert "reasoning_content" not in written(foreign(assistant(call)), "groq")[0]["messages"][0]


def test_pictures_of_a_tool_follow_the_results() -> None:
    picture = Media(kind="image", mime="image/png", data="AAAA")
    call = foreign(
        Message(
            role="tool",
            parts=(
                ToolResult(call_id="c1", content=(Text(text="see"), picture)),
                ToolResult(call_id="c2", content=(Text(text="bad"),), is_error=True),
            ),
        ),
        Message(role="user", parts=(Text(text="so?"),)),
    )
    body, dropped = written(call)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert body["messages"] == [
        {"role": "tool", "tool_call_id": "c1", "content": "see"},
        {"role": "tool", "tool_call_id": "c2", "content": "bad"},
        {"role": "user", "content": [image]},
        {"role": "user", "content": "so?"},
    ]
    assert dropped == ("messages.is_error",)


def test_content_that_a_server_of_text_cannot_take() -> None:
    call = foreign(
        Message(role="user", parts=(Text(text="a"), Text(text="b"))),
        Message(role="user", parts=(Text(text="c"), Media(kind="image", url="https://x"))),
    )
    body, dropped = written(call, "cerebras")
    assert [one["content"] for one in body["messages"]] == ["a\nb", "c"]
    assert dropped == ("messages.image",)


def test_system_messages_of_templates() -> None:
    call = read(
        messages=[
            {"role": "system", "content": "A"},
            {"role": "developer", "content": "B"},
            USER,
            {"role": "system", "content": "late"},
        ]
    )
    body, dropped = written(call, "vllm")
    assert body["messages"] == [
        {"role": "system", "content": "A\n\nB"},
        USER,
        {"role": "user", "content": "late"},
    ]
    assert dropped == ("messages.role",)
    roles = [one["role"] for one in written(call, "groq")[0]["messages"]]
    assert roles == ["system", "system", "user", "system"]


@pytest.mark.parametrize(
    ("variant", "mark", "dropped"),
    [
        ("openrouter", {"cache_control": {"type": "ephemeral", "ttl": "1h"}}, ()),
        (
            "openai",
            {"prompt_cache_breakpoint": {"mode": "explicit"}},
            ("cache.lifetime",),
        ),
        ("groq", None, ("cache",)),
    ],
)
def test_marks_of_caches(
    variant: str, mark: dict[str, Any] | None, dropped: tuple[str, ...]
) -> None:
    cache = CacheMark("1h")
    call = foreign(
        Message(role="user", parts=(Text(text="a", cache=cache),)),
        instructions=(Text(text="S", cache=cache),),
    )
    body, told = written(call, variant)
    for message, words in zip(body["messages"], ("S", "a"), strict=True):
        wanted = words if mark is None else [{"type": "text", "text": words, **mark}]
        assert message["content"] == wanted
    assert told == dropped


def test_parts_of_other_dialects_are_left_out() -> None:
    call = foreign(assistant(Opaque("anthropic", {"type": "zz"}), Text(text="a"), Refusal("r")))
    assert written(call)[0]["messages"] == [{"role": "assistant", "content": "a", "refusal": "r"}]


def test_tools_where_there_are_none() -> None:
    none = msgspec.structs.replace(PRESETS["generic"], takes=frozenset())
    with pytest.raises(RequestError) as caught:
        OpenAIChatProvider(none).write_call(foreign(tools=(LOOK,)), "m")
    assert caught.value.param == "tools"


def test_paths() -> None:
    call = read()
    assert OpenAIChatProvider(azure()).write_call(call, "d").path == ("/openai/v1/chat/completions")
    old = OpenAIChatProvider(azure("2024-10-21"))
    assert old.write_call(call, "a/b c").path == (
        "/openai/deployments/a%2Fb%20c/chat/completions?api-version=2024-10-21"
    )
    for variant in PRESETS.values():
        request = OpenAIChatProvider(variant).write_call(call, "m")
        assert request.path.endswith("/chat/completions")
        assert request.headers == {"Content-Type": "application/json"}
