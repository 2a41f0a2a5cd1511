"""What clients of Ollama ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama import CLIENT, PROVIDER, load
from headrace.protocol.neutral import carried_id
from headrace.protocol.neutral.call import ChatCall, OutputFormat, Reasoning, Tool
from headrace.protocol.neutral.part import (
    Media,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.ollama.samples import WEATHER_TOOL, body

PNG = "iVBORw0KGgoAAAANSUhEUg=="


def read(**fields: Any) -> ChatCall:
    return CLIENT.read_call(body(**fields), "/api/chat", {})


def test_a_call_without_anything_streams_and_says_nothing_else() -> None:
    call = read()
    assert (call.model, call.dialect) == ("llama3.2", "ollama")
    assert call.stream
    assert call.stream_usage
    assert call.messages[0].parts == (Text(text="Hi"),)
    unsaid = ("temperature", "max_tokens", "top_k", "seed", "output", "reasoning", "logprobs")
    assert [getattr(call, name) for name in unsaid] == [None] * len(unsaid)
    assert call.extra == {}
    assert not read(stream=False).stream_usage


def test_options_with_a_neutral_form_and_those_without() -> None:
    call = read(
        options={
            "num_predict": 5.0,
            "temperature": 0,
            "top_p": 0.9,
            "top_k": 40,
            "min_p": 0.05,
            "seed": 7,
            "stop": "END",
            "repeat_penalty": 1.1,
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
            "num_ctx": 8192,
            "mirostat": None,
        },
        keep_alive="5m",
        truncate=True,
    )
    assert call.max_tokens == 5
    assert (call.temperature, call.top_p, call.top_k, call.min_p) == (0, 0.9, 40, 0.05)
    assert (call.seed, call.stop) == (7, ("END",))
    assert call.repetition_penalty == 1.1
    assert (call.presence_penalty, call.frequency_penalty) == (0.5, -0.5)
    assert call.extra == {"keep_alive": "5m", "truncate": True, "options": {"num_ctx": 8192}}


@pytest.mark.parametrize("told", [-1, -2, 0])
def test_num_predict_without_a_bound_is_no_max_tokens(told: int) -> None:
    call = read(options={"num_predict": told})
    assert call.max_tokens is None
    assert call.extra == {"options": {"num_predict": told}}


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (True, Reasoning(adaptive=True, shown=True)),
        (False, Reasoning(effort="none")),
        ("low", Reasoning(effort="low", shown=True)),
        ("high", Reasoning(effort="high", shown=True)),
        ("max", Reasoning(effort="xhigh", shown=True)),
        (None, None),
    ],
)
def test_think(told: object, wanted: Reasoning | None) -> None:
    assert read(think=told).reasoning == wanted


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("json", OutputFormat(kind="json")),
        ({"type": "object"}, OutputFormat(kind="schema", schema={"type": "object"})),
        ("", None),
        (None, None),
    ],
)
def test_format(told: object, wanted: OutputFormat | None) -> None:
    assert read(format=told).output == wanted


def test_system_messages_before_the_first_turn_and_between_turns() -> None:
    call = read(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "Hi"},
            {"role": "system", "content": "Now in French."},
        ]
    )
    assert call.instructions == (Text(text="Be brief."), Text(text="Be kind."))
    assert [one.role for one in call.messages] == ["user", "user"]
    assert call.messages[1].extra == {"role": "system"}
    assert call.messages[1].parts == (Text(text="Now in French."),)


def test_a_system_message_with_more_than_text_keeps_its_place() -> None:
    call = read(messages=[{"role": "system", "content": "x", "images": [PNG]}])
    assert call.instructions == ()
    assert call.messages[0].extra == {"role": "system"}


def test_images_are_base64_whose_kind_is_seen() -> None:
    message = {"role": "user", "content": "What is it?", "images": [PNG, "/9j/4AAQ\nSkZJRg=="]}
    assert read(messages=[message]).messages[0].parts == (
        Media(kind="image", mime="image/png", data=PNG),
        Media(kind="image", mime="image/jpeg", data="/9j/4AAQSkZJRg=="),
        Text(text="What is it?"),
    )


@pytest.mark.parametrize("address", ["https://x.org/a.png", "data:image/png;base64,AA==", ""])
def test_images_by_address_are_refused_with_a_remedy(address: str) -> None:
    with pytest.raises(RequestError, match="base64") as error:
        read(messages=[{"role": "user", "content": "", "images": [PNG, address]}])
    assert error.value.param == "messages[0].images[1]"


def test_tools() -> None:
    bare = {"function": {"name": "now", "parameters": None}}
    call = read(tools=[WEATHER_TOOL, bare])
    function = WEATHER_TOOL["function"]
    assert isinstance(function, dict)
    weather = Tool(
        name="get_weather", description="Weather of a city", parameters=function["parameters"]
    )
    assert call.tools == (weather, Tool(name="now"))


def called(name: str, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": {"city": "Oslo"}}, **more}


def test_tool_calls_without_ids_get_one_by_their_place() -> None:
    call = read(
        messages=[
            {"role": "assistant", "tool_calls": [called("a"), called("b")]},
            {"role": "tool", "tool_name": "b", "content": "B"},
            {"role": "tool", "name": "a", "content": "A"},
            {"role": "assistant", "content": "and", "tool_calls": [called("a"), called("a")]},
            {"role": "tool", "content": "first"},
            {"role": "tool", "tool_name": "a", "content": "second"},
            {"role": "tool", "content": "nobody asked"},
        ]
    )
    calls = [one for turn in call.messages for one in turn.parts if isinstance(one, ToolCall)]
    assert [one.id for one in calls] == ["call_0_0", "call_0_1", "call_1_0", "call_1_1"]
    assert json.loads(calls[0].arguments) == {"city": "Oslo"}
    results = [one for turn in call.messages for one in turn.parts if isinstance(one, ToolResult)]
    assert [(one.call_id, one.name) for one in results] == [
        ("call_0_1", "b"),
        ("call_0_0", "a"),
        ("call_1_0", "a"),
        ("call_1_1", "a"),
        ("call_none_1", ""),
    ]
    assert results[0].content == (Text(text="B"),)


def test_ids_that_are_told_are_kept_and_signatures_in_them_come_back() -> None:
    signature = Signature("gemini", "c2ln")
    carried = carried_id.pack("call_x", signature)
    call = read(
        messages=[
            {"role": "assistant", "tool_calls": [called("a", id="plain"), called("a", id=carried)]},
            {"role": "tool", "tool_call_id": carried, "content": "1"},
            {"role": "tool", "content": "2"},
        ]
    )
    first, second = call.messages[0].parts
    assert isinstance(first, ToolCall)
    assert isinstance(second, ToolCall)
    assert (first.id, first.signature) == ("plain", None)
    assert (second.id, second.signature) == ("call_x", signature)
    results = [turn.parts[0] for turn in call.messages[1:]]
    assert [one.call_id for one in results if isinstance(one, ToolResult)] == ["call_x", "plain"]


def test_thoughts_come_first_and_signed_ones_keep_their_signature() -> None:
    message = {"role": "assistant", "content": "4", "thinking": "2+2"}
    assert read(messages=[message]).messages[0].parts == (Thinking(text="2+2"), Text(text="4"))
    message["reasoning_details"] = [
        {
            "type": "reasoning.text",
            "text": "2+2",
            "signature": "sig",
            "format": "anthropic-claude-v1",
            "index": 0,
        },
        {"type": "reasoning.encrypted", "data": "hidden", "format": "anthropic-claude-v1"},
    ]
    assert read(messages=[message]).messages[0].parts[:2] == (
        Thinking(text="2+2", signature=Signature("anthropic", "sig")),
        Thinking(text="", signature=Signature("anthropic", "hidden"), redacted=True),
    )


def test_unknown_fields_of_a_message_are_kept() -> None:
    message = {"role": "user", "content": "Hi", "name": "Ada", "x": [1]}
    assert read(messages=[message]).messages[0].extra == {"name": "Ada", "x": [1]}


@pytest.mark.parametrize(
    ("keep_alive", "reason"),
    [
        (None, "load"),
        ("5m", "load"),
        (-1, "load"),
        (0, "unload"),
        ("0", "unload"),
        ("0s", "unload"),
    ],
)
def test_a_call_without_messages_loads_or_unloads(keep_alive: object, reason: str) -> None:
    call = read(messages=[], keep_alive=keep_alive)
    assert load.load_reason(call) == reason
    told = json.loads(CLIENT.write_reply(load.load_reply(call), call))
    assert told == {
        "model": "llama3.2",
        "created_at": "1970-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": reason,
    }


def test_a_call_with_messages_loads_nothing() -> None:
    assert load.load_reason(read(keep_alive=0)) is None
    assert load.load_reason(CLIENT.read_call(b'{"model":"m"}', "/api/chat", {})) == "load"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "images": "x"}]}, "messages[0].images"),
        ({"messages": [{"role": "user", "images": [5]}]}, "messages[0].images[0]"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": [1]}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"tools": [{"type": "browser"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"format": "yaml"}, "format"),
        ({"format": 5}, "format"),
        ({"think": "hard"}, "think"),
        ({"think": 1}, "think"),
        ({"stream": "yes"}, "stream"),
        ({"options": []}, "options"),
        ({"options": {"temperature": "hot"}}, "options.temperature"),
        ({"options": {"temperature": True}}, "options.temperature"),
        ({"options": {"seed": 1.5}}, "options.seed"),
        ({"options": {"seed": 2**70}}, "options.seed"),
        ({"options": {"num_predict": 1e300}}, "options.num_predict"),
        ({"options": {"stop": [1]}}, "options.stop"),
        ({"top_logprobs": "2"}, "top_logprobs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as error:
        read(**fields)
    assert error.value.param == param
    assert param in str(error.value)


_NAMES = st.sampled_from(
    [
        "role",
        "content",
        "images",
        "thinking",
        "tool_calls",
        "tool_name",
        "id",
        "function",
        "name",
        "arguments",
        "type",
        "stop",
        "seed",
        "reasoning_details",
        "text",
        "signature",
        "format",
    ]
)
_ROLES = st.sampled_from(["user", "assistant", "tool", "system", "reasoning.text", "function"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _ROLES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=12,
)
_FIELDS = st.sampled_from(
    ["messages", "tools", "options", "format", "think", "stream", "logprobs", "x"]
)


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(st.dictionaries(_FIELDS, _JSON | st.lists(_JSON, max_size=3), max_size=4))
def test_whatever_is_sent_is_read_or_refused(fields: dict[str, Any]) -> None:
    try:
        call = read(**fields)
    except RequestError:
        return
    try:
        written = PROVIDER.write_call(call, "m")
    except RequestError:
        return
    assert json.loads(written.body)["model"] == "m"
    assert written.dropped == ()


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b'{"model":', b"\xff", b"[" * 10**5])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(RequestError):
        CLIENT.read_call(raw, "/api/chat", {})
