"""Calls of other dialects as requests of this one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic import PROVIDER, AnthropicProvider
from headrace.protocol.neutral.call import (
    ChatCall,
    HostedTool,
    OutputFormat,
    Tool,
    ToolChoice,
)
from headrace.protocol.neutral.part import (
    CacheMark,
    Text,
)
from tests.protocol.dialects.anthropic.written_calls import (
    HI,
    MODEL,
    text,
    user,
    written,
)


def test_the_smallest_request() -> None:
    out = PROVIDER.write_call(
        ChatCall(dialect="openai_chat", model="alias", messages=HI), "claude-haiku-4-5"
    )
    assert json.loads(out.body) == {
        "model": "claude-haiku-4-5",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": [text("hi")]}],
    }
    assert out.path == "/v1/messages"
    assert out.headers["anthropic-version"] == "2023-06-01"
    assert "anthropic-beta" not in out.headers
    assert out.dropped == ()


def test_max_tokens_is_the_calls_or_the_models() -> None:
    call = ChatCall(dialect="openai_chat", model="m", messages=HI)
    provider = AnthropicProvider(default_max_tokens=64000)
    assert json.loads(provider.write_call(call, MODEL).body)["max_tokens"] == 64000
    assert written(max_tokens=7)[0]["max_tokens"] == 7


def test_instructions() -> None:
    assert written(instructions=(Text(text="a"),))[0]["system"] == "a"
    several = (Text(text="a"), Text(text=" "), Text(text="b", cache=CacheMark("1h")))
    assert written(instructions=several)[0]["system"] == [
        text("a"),
        {**text("b"), "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]


def test_the_earliest_of_too_many_marks_are_lost() -> None:
    mark = CacheMark()
    fields: dict[str, Any] = {
        "tools": (Tool(name="f", cache=mark),),
        "instructions": (Text(text="s", cache=mark),),
    }
    messages = [user(Text(text=str(one), cache=mark)) for one in range(4)]
    body, dropped = written(*messages, **fields)
    assert dropped == ("cache",)
    assert "cache_control" not in body["tools"][0]
    assert "cache_control" not in body["system"][0]
    assert all("cache_control" in one for one in body["messages"][0]["content"])
    body, dropped = written(*messages, dialect="anthropic", **fields)
    assert dropped == ()
    assert "cache_control" in body["tools"][0]


def test_tools() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    tools = (
        Tool(name="f", description="d", parameters=schema, strict=False),
        Tool(name="g"),
        Tool(name="h", parameters=schema, strict=True),
        HostedTool("openai_responses", {"type": "web_search"}),
        HostedTool("anthropic", {"type": "web_search_20250305", "name": "web_search"}),
    )
    body, dropped = written(tools=tools)
    assert body["tools"] == [
        {"name": "f", "description": "d", "input_schema": schema},
        {"name": "g", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "h",
            "input_schema": {
                "type": "object",
                "properties": {"a": {"type": "integer", "description": "{minimum: 1}"}},
                "additionalProperties": False,
            },
            "strict": True,
        },
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    assert dropped == ("tools.parameters.minimum", "tools.web_search")
    body, dropped = written(tools=tools[2:3], model="claude-3-haiku-20240307")
    assert body["tools"] == [{"name": "h", "input_schema": schema}]
    assert dropped == ("tools.strict",)


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("auto"), None, {"type": "auto"}),
        (ToolChoice("required"), False, {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice("none"), False, {"type": "none"}),
        (ToolChoice("one", "f"), None, {"type": "tool", "name": "f"}),
    ],
)
def test_tool_choice(
    choice: ToolChoice | None, parallel: bool | None, expected: dict[str, Any] | None
) -> None:
    body, _ = written(tools=(Tool(name="f"),), tool_choice=choice, parallel_tool_calls=parallel)
    assert body.get("tool_choice") == expected
    body, _ = written(tool_choice=ToolChoice("auto"))
    assert "tool_choice" not in body


def test_what_cannot_be_said_is_told() -> None:
    _, dropped = written(
        *HI,
        user("a", name="ann"),
        min_p=0.1,
        frequency_penalty=1.0,
        presence_penalty=1.0,
        repetition_penalty=1.1,
        logit_bias={"1": 1.0},
        seed=1,
        choices=2,
        logprobs=True,
        top_logprobs=3,
        modalities=("text", "audio"),
        metadata={"a": "b"},
        service_tier="flex",
        output=OutputFormat(kind="json"),
        stop=("\n", "END"),
        extra={"top_a": 1},
    )
    assert set(dropped) == {
        "messages.name",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "seed",
        "choices",
        "logprobs",
        "top_logprobs",
        "modalities",
        "metadata",
        "service_tier",
        "output",
        "stop",
        "extra.top_a",
    }


def test_what_changes_nothing_is_not_told() -> None:
    body, dropped = written(
        frequency_penalty=0.0,
        presence_penalty=0,
        repetition_penalty=1.0,
        min_p=0.0,
        choices=1,
        logprobs=False,
        modalities=("text",),
        metadata={},
        service_tier="default",
        user="u",
        stop=("END",),
        stream=True,
        stream_usage=True,
        output=OutputFormat(kind="text"),
    )
    assert dropped == ()
    assert body["service_tier"] == "standard_only"
    assert body["metadata"] == {"user_id": "u"}
    assert body["stop_sequences"] == ["END"]
    assert body["stream"] is True


@pytest.mark.parametrize(
    ("model", "said", "expected", "dropped"),
    [
        ("claude-3-haiku-20240307", (0.5, 0.9, 4), (0.5, 0.9, 4), ()),
        ("claude-3-haiku-20240307", (1.5, None, None), (None, None, None), ("temperature",)),
        ("claude-sonnet-4-5", (0.5, 0.9, 4), (0.5, None, 4), ("top_p",)),
        ("claude-sonnet-4-5", (0.5, 1.0, None), (0.5, None, None), ()),
        ("claude-sonnet-4-5", (None, 0.9, None), (None, 0.9, None), ()),
        ("claude-opus-4-7", (0.5, 0.9, 4), (None, None, None), ("temperature", "top_p", "top_k")),
        ("claude-opus-4-7", (1.0, 1.0, None), (1.0, None, None), ()),
    ],
)
def test_sampling(
    model: str,
    said: tuple[float | None, ...],
    expected: tuple[float | None, ...],
    dropped: tuple[str, ...],
) -> None:
    names = ("temperature", "top_p", "top_k")
    body, told = written(model=model, **dict(zip(names, said, strict=True)))
    assert tuple(body.get(name) for name in names) == expected
    assert told == dropped


def test_sampling_of_its_own_is_left_as_it_is() -> None:
    body, dropped = written(
        model="claude-opus-4-7", dialect="anthropic", temperature=0.5, top_p=0.5, top_k=1
    )
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.5, 0.5, 1)
    assert dropped == ()


def test_structured_output() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "x", "maxLength": 3},
            "b": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/c"}]},
            "d": {"type": "array", "items": {"type": "string", "format": "date"}, "minItems": 1},
            "e": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3},
        },
        "required": ["a"],
        "additionalProperties": True,
        "$defs": {"c": {"type": "object", "properties": {}}},
    }
    body, dropped = written(output=OutputFormat(kind="schema", schema=schema, name="n"))
    assert body["output_config"]["format"] == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "properties": {
                "a": {"type": "string", "description": "x\n\n{maxLength: 3}"},
                "b": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/c"}]},
                "d": {
                    "type": "array",
                    "items": {"type": "string", "format": "date"},
                    "minItems": 1,
                },
                "e": {
                    "type": "array",
                    "items": {"enum": [1, 2]},
                    "description": "{maxItems: 3}",
                },
            },
            "required": ["a"],
            "additionalProperties": False,
            "$defs": {"c": {"type": "object", "properties": {}, "additionalProperties": False}},
        },
    }
    assert set(dropped) == {
        "output.schema.maxLength",
        "output.schema.maxItems",
        "output.schema.additionalProperties",
    }


def test_extra_fields_of_its_own_come_back() -> None:
    extra = {
        "container": "c",
        "metadata": {"team": "t"},
        "output_config": {"effort": "max", "task_budget": {"total": 1}},
        "betas": ["b"],
    }
    body, dropped = written(dialect="anthropic", extra=extra, user="u")
    assert body["container"] == "c"
    assert body["metadata"] == {"user_id": "u", "team": "t"}
    assert body["output_config"] == extra["output_config"]
    assert "betas" not in body
    assert dropped == ()


def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(2000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(RequestError, match="nested too deeply"):
        written(output=OutputFormat(kind="schema", schema=schema))


def test_counting() -> None:
    call = ChatCall(
        dialect="openai_chat",
        model="m",
        messages=HI,
        max_tokens=5,
        temperature=0.5,
        stop=("END",),
        tools=(Tool(name="f"),),
        instructions=(Text(text="s"),),
        stream=True,
    )
    out = PROVIDER.write_count(call, MODEL)
    assert out.path == "/v1/messages/count_tokens"
    assert set(json.loads(out.body)) == {"model", "messages", "system", "tools"}
