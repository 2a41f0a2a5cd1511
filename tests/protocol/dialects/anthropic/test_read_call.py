"""Clients' requests, read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic import CLIENT
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
    Text,
)
from tests.protocol.dialects.anthropic.read_calls import BASE, read


def test_the_smallest_request() -> None:
    assert read() == ChatCall(
        dialect="anthropic",
        model="claude-sonnet-4-5",
        max_tokens=100,
        messages=(Message(role="user", parts=(Text(text="hi"),)),),
    )


def test_every_plain_field() -> None:
    call = read(
        system="be brief",
        temperature=0.5,
        top_p=1,
        top_k=5,
        stop_sequences=["END"],
        stream=True,
        metadata={"user_id": "u"},
        service_tier="standard_only",
    )
    assert call.instructions == (Text(text="be brief"),)
    assert (call.temperature, call.top_p, call.top_k) == (0.5, 1.0, 5)
    assert call.stop == ("END",)
    assert call.stream
    assert call.stream_usage
    assert call.user == "u"
    assert call.service_tier == "standard_only"
    assert call.extra == {}


def test_system_blocks_with_marks() -> None:
    system = [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "b", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": "c", "cache_control": {"type": "ephemeral", "ttl": "5m"}},
        {"type": "text", "text": "d", "cache_control": None},
    ]
    marks = [one.cache for one in read(system=system).instructions]
    assert marks == [CacheMark(), CacheMark("1h"), CacheMark("5m"), None]


def test_a_system_message_between_turns() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "system", "content": [{"type": "text", "text": "b"}]},
    ]
    assert read(messages=messages).messages[1] == Message(
        role="user", parts=(Text(text="b"),), extra={"role": "system"}
    )


def test_tools() -> None:
    schema = {"type": "object", "properties": {}}
    tools = [
        {
            "name": "f",
            "description": "d",
            "input_schema": schema,
            "strict": True,
            "cache_control": {"type": "ephemeral"},
            "defer_loading": True,
        },
        {"type": "custom", "name": "g", "input_schema": schema},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
    ]
    assert read(tools=tools).tools == (
        Tool(
            name="f",
            description="d",
            parameters=schema,
            strict=True,
            cache=CacheMark(),
            extra={"defer_loading": True},
        ),
        Tool(name="g", parameters=schema),
        HostedTool("anthropic", tools[2]),
    )


@pytest.mark.parametrize(
    ("written", "choice", "parallel"),
    [
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "any"}, ToolChoice("required"), None),
        ({"type": "none"}, ToolChoice("none"), None),
        ({"type": "tool", "name": "f"}, ToolChoice("one", "f"), None),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto"), False),
        ({"type": "any", "disable_parallel_tool_use": False}, ToolChoice("required"), True),
    ],
)
def test_tool_choice(written: dict[str, Any], choice: ToolChoice, parallel: bool | None) -> None:
    call = read(tool_choice=written)
    assert call.tool_choice == choice
    assert call.parallel_tool_calls is parallel


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            Reasoning(budget_tokens=2000),
        ),
        ({"thinking": {"type": "adaptive"}}, Reasoning(adaptive=True)),
        (
            {"thinking": {"type": "adaptive", "display": "omitted"}},
            Reasoning(adaptive=True, shown=False),
        ),
        ({"thinking": {"type": "disabled"}}, Reasoning(budget_tokens=0)),
        ({"output_config": {"effort": "low"}}, Reasoning(effort="low")),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}},
            Reasoning(adaptive=True, effort="xhigh"),
        ),
    ],
)
def test_reasoning(fields: dict[str, Any], reasoning: Reasoning) -> None:
    call = read(**fields)
    assert call.reasoning == reasoning
    assert call.thought_signatures is (None if reasoning.budget_tokens == 0 else True)
    assert call.extra == {}


def test_the_highest_effort_is_kept_beside_the_nearest() -> None:
    call = read(output_config={"effort": "max", "task_budget": {"type": "tokens", "total": 9}})
    assert call.reasoning == Reasoning(effort="xhigh")
    assert call.extra == {
        "output_config": {"effort": "max", "task_budget": {"type": "tokens", "total": 9}}
    }


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_structured_output(name: str) -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    call = read(**{name: {"format": form} if name == "output_config" else form})
    assert call.output == OutputFormat(kind="schema", schema={"type": "object"})


def test_unknown_fields_and_betas_are_kept() -> None:
    call = read(
        {"Anthropic-Beta": "a-2025-01-01, b-2025-01-01"},
        container="c",
        mcp_servers=[{"name": "m"}],
        context_management={"edits": []},
        inference_geo=None,
        metadata={"user_id": "u", "team": "t"},
    )
    assert call.extra == {
        "container": "c",
        "mcp_servers": [{"name": "m"}],
        "context_management": {"edits": []},
        "metadata": {"team": "t"},
        "betas": ["a-2025-01-01", "b-2025-01-01"],
    }


def test_count_tokens_needs_no_max_tokens() -> None:
    body = json.dumps({key: BASE[key] for key in ("model", "messages")}).encode()
    call = CLIENT.read_call(body, "/v1/messages/count_tokens?beta=true", {})
    assert call.max_tokens is None
    with pytest.raises(RequestError, match="max_tokens: this field is required"):
        CLIENT.read_call(body, "/v1/messages", {})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"text": "a"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]},
            "messages[0].content[0].name",
        ),
        ({"system": [{"type": "text", "text": 1}]}, "system[0].text"),
        (
            {"system": [{"type": "text", "text": "", "cache_control": {"type": "x"}}]},
            "system[0].cache_control.type",
        ),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [1]}, "stop_sequences[0]"),
        ({"stream": "yes"}, "stream"),
        ({"metadata": "u"}, "metadata"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json"}}}, "output_config.format.type"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert caught.value.param == param
    assert str(caught.value).startswith(param)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"null",
        b'"a"',
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
    ids=["empty", "cut", "list", "bytes", "null", "text", "lists", "deep"],
)
def test_damaged_bodies_are_request_errors(body: bytes) -> None:
    with pytest.raises(RequestError):
        CLIENT.read_call(body, "/v1/messages", {})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("type", "text", "role", "content", "id")), inner)
    ),
    max_leaves=8,
)
_FIELDS = (
    *("model", "messages", "system", "max_tokens", "metadata", "stop_sequences", "stream", "top_k"),
    *("temperature", "tools", "tool_choice", "thinking", "output_config", "service_tier", "odd"),
)


# A machine that is busy with other tests makes inputs slowly.
@pytest.mark.long
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON))
def test_no_body_raises_anything_else(fields: dict[str, Any]) -> None:
    try:
        read(**fields)
    except RequestError as error:
        assert str(error)
