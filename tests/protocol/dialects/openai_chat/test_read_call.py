"""Requests of clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_chat import CLIENT
from headrace.protocol.neutral.call import (
    HostedTool,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
from tests.protocol.dialects.openai_chat.samples import USER, read

FUNCTION = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}


def test_every_field_of_the_neutral_form() -> None:
    call = read(
        max_tokens=5,
        max_completion_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        min_p=0.125,
        frequency_penalty=-1,
        presence_penalty=1.5,
        repetition_penalty=1.25,
        logit_bias={"50256": -100},
        seed=-4,
        stop="END",
        n=2,
        logprobs=True,
        top_logprobs=4,
        modalities=["text", "audio"],
        user="u",
        metadata={"a": "b"},
        service_tier="flex",
        stream=True,
        stream_options={"include_usage": True},
        parallel_tool_calls=False,
    )
    assert call.dialect == "openai-chat"
    assert call.max_tokens == 7
    assert (call.temperature, call.top_p, call.top_k, call.min_p) == (0.5, 0.25, 3, 0.125)
    assert (call.frequency_penalty, call.presence_penalty) == (-1, 1.5)
    assert call.repetition_penalty == 1.25
    assert call.logit_bias == {"50256": -100}
    assert (call.seed, call.stop, call.choices) == (-4, ("END",), 2)
    assert (call.logprobs, call.top_logprobs) == (True, 4)
    assert call.modalities == ("text", "audio")
    assert (call.user, call.metadata, call.service_tier) == ("u", {"a": "b"}, "flex")
    assert (call.stream, call.stream_usage) == (True, True)
    assert call.parallel_tool_calls is False
    assert call.extra == {}


def test_nothing_said_is_nothing() -> None:
    call = read(temperature=None, tools=None, stop=None, metadata=None)
    assert call.temperature is None and call.tools == () and call.stop == ()
    assert call.choices is None and call.seed is None and not call.stream
    assert call.extra == {} and not call.legacy_functions


def test_unknown_fields_are_kept() -> None:
    fields = {"store": True, "verbosity": "low", "provider": {"order": ["a"]}, "zzz": [1]}
    assert read(**fields).extra == fields
    options = {"include_usage": False, "include_obfuscation": False}
    assert read(stream_options=options).extra == {"stream_options": {"include_obfuscation": False}}


def test_tools_and_their_choice() -> None:
    hosted = {"type": "web_search", "filters": {}}
    call = read(
        tools=[{"type": "function", "function": {**FUNCTION, "strict": True}}, hosted],
        tool_choice={"type": "function", "function": {"name": "look"}},
    )
    assert call.tools == (
        Tool(name="look", description="Looks.", parameters={"type": "object"}, strict=True),
        HostedTool("openai-chat", hosted),
    )
    assert call.tool_choice == ToolChoice("one", "look")
    for kind in ("auto", "none", "required"):
        assert read(tool_choice=kind).tool_choice == ToolChoice(kind)
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
    assert read(tool_choice=allowed).tool_choice is None
    assert read(tool_choice=allowed).extra == {"tool_choice": allowed}


def test_functions_are_tools_of_an_older_client() -> None:
    call = read(functions=[FUNCTION], function_call={"name": "look"})
    assert call.legacy_functions
    assert call.tools == (Tool(name="look", description="Looks.", parameters={"type": "object"}),)
    assert call.tool_choice == ToolChoice("one", "look")
    assert call.parallel_tool_calls is False
    assert call.extra == {}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "text"}, OutputFormat(kind="text")),
        ({"type": "json_object"}, OutputFormat(kind="json")),
        (
            {
                "type": "json_schema",
                "json_schema": {
                    "name": "n",
                    "description": "d",
                    "schema": {"type": "object"},
                    "strict": True,
                },
            },
            OutputFormat(
                kind="schema", schema={"type": "object"}, name="n", description="d", strict=True
            ),
        ),
    ],
)
def test_output_formats(given: dict[str, Any], wanted: OutputFormat) -> None:
    assert read(response_format=given).output == wanted


def test_a_grammar_is_kept_for_its_engine() -> None:
    grammar = {"type": "regex", "pattern": "a+"}
    call = read(response_format=grammar)
    assert call.output is None and call.extra == {"response_format": grammar}


@pytest.mark.parametrize(
    ("fields", "wanted", "extra"),
    [
        ({"reasoning_effort": "minimal"}, Reasoning(effort="minimal"), {}),
        (
            {"reasoning_effort": "max"},
            Reasoning(effort="xhigh"),
            {"reasoning_effort": "max"},
        ),
        ({"reasoning_effort": "default"}, None, {"reasoning_effort": "default"}),
        (
            {"reasoning": {"max_tokens": 2000, "exclude": True}},
            Reasoning(budget_tokens=2000, shown=False),
            {},
        ),
        ({"reasoning": {"effort": "high"}}, Reasoning(effort="high"), {}),
        ({"reasoning": {"enabled": False}}, Reasoning(effort="none"), {}),
        ({"reasoning": {"enabled": True}}, None, {"reasoning": {"enabled": True}}),
        ({"thinking": {"type": "disabled"}}, Reasoning(effort="none"), {}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 9}},
            Reasoning(budget_tokens=9),
            {},
        ),
        ({"thinking": {"type": "enabled"}}, None, {"thinking": {"type": "enabled"}}),
    ],
)
def test_reasoning(fields: dict[str, Any], wanted: Reasoning | None, extra: dict[str, Any]) -> None:
    call = read(**fields)
    assert call.reasoning == wanted
    assert call.extra == extra


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [{"role": "king", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].image_url",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stop": [3]}, "stop"),
        ({"seed": True}, "seed"),
        ({"logit_bias": {"5": "a"}}, "logit_bias.5"),
        ({"metadata": {"a": 3}}, "metadata.a"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"reasoning": {"max_tokens": -1}}, "reasoning.max_tokens"),
        ({"functions": {}}, "functions"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'"x"', b"\xff", b'{"a":' * 5000])
def test_a_body_that_is_no_object(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        CLIENT.read_call(body, "", {})
    assert caught.value.code in ("invalid_json", "body_too_complex")


def test_a_body_of_too_many_values() -> None:
    body = json.dumps({"model": "m", "messages": [USER], "x": [[]] * 70000}).encode()
    with pytest.raises(RequestError) as caught:
        CLIENT.read_call(body, "", {})
    assert caught.value.code == "body_too_complex"
