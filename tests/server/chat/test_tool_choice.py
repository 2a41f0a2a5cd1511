"""The choice of tools as the grammar that the engine gets: the calls it lets pass, no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.chat.test_tools import HELLO, WEATHER, with_tools
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says
from tests.structured.matching import Language

Start = Callable[..., Running]

NOW = {"type": "function", "function": {"name": "now"}}
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "x", "schema": {"type": "integer", "maximum": 9, "minimum": 0}},
}


def call(name: str, **arguments: Any) -> str:
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def language(start: Start, **fields: Any) -> Language | None:
    """The texts that an answer may be; None for any."""
    engine = MockEngine(says("x"))
    body = {"messages": HELLO, "tools": [WEATHER, NOW], **fields}
    reply = with_tools(start, engine).post("/v1/chat/completions", body)
    assert reply.status_code == 200, reply.text
    grammar = engine.submitted[0].params.grammar
    return None if grammar is None else Language(grammar)


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_auto_is_free(start: Start) -> None:
    assert language(start) is None
    assert language(start, tool_choice="auto") is None
    assert language(start, tool_choice="none") is None


def test_required_is_a_call_of_any_tool_with_arguments_of_its_schema(start: Start) -> None:
    texts = language(start, tool_choice="required")
    assert texts is not None
    assert texts.has(call("get_weather", city="Rome"))
    assert texts.has(call("now"))
    assert texts.has(call("now") + "\n" + call("get_weather", city="Rome"))
    for wrong in ("Hello", call("get_weather"), call("get_weather", city=1), call("other"), ""):
        assert not texts.has(wrong), wrong


def test_a_named_tool_is_called_once_and_no_other(start: Start) -> None:
    texts = language(start, tool_choice=named("now"))
    assert texts is not None
    assert texts.has(call("now"))
    assert not texts.has(call("get_weather", city="Rome"))
    assert not texts.has(call("now") + "\n" + call("now"))


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_called(start: Start, mode: str) -> None:
    allowed = {"mode": mode, "tools": [named("now")]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    texts = language(start, tool_choice=choice)
    assert texts is not None
    assert texts.has(call("now"))
    assert not texts.has(call("get_weather", city="Rome"))
    assert texts.has("Hello") == (mode == "auto")


def test_calls_that_are_not_parallel_are_one(start: Start) -> None:
    texts = language(start, parallel_tool_calls=False)
    assert texts is not None
    assert texts.has(call("now"))
    assert texts.has("Hello")
    assert not texts.has(call("now") + "\n" + call("now"))


def test_strict_tools_hold_arguments_to_their_schema(start: Start) -> None:
    function = {**WEATHER["function"], "strict": True}
    texts = language(start, tools=[{"type": "function", "function": function}])
    assert texts is not None
    assert texts.has("Hello")
    assert texts.has(call("get_weather", city="Rome"))
    assert not texts.has(call("get_weather", city=1))


def test_an_answer_with_a_form_is_that_or_a_call(start: Start) -> None:
    texts = language(start, response_format=FORM)
    assert texts is not None
    assert texts.has("7")
    assert texts.has(call("now"))
    assert not texts.has("Hello")


def test_a_form_does_not_matter_where_a_call_is_required(start: Start) -> None:
    texts = language(start, response_format=FORM, tool_choice="required")
    assert texts is not None
    assert texts.has(call("now"))
    assert not texts.has("7")


ODD = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}


def test_a_schema_that_cannot_be_held_is_refused_where_it_has_to_be(start: Start) -> None:
    def tool(**fields: Any) -> dict[str, Any]:
        return {"type": "function", "function": {"name": "odd", "parameters": ODD, **fields}}

    texts = language(start, tools=[tool()], tool_choice="required")
    assert texts is not None
    assert texts.has(call("odd", a=[1, 1]))
    assert not texts.has("Hello")
    body = {"messages": HELLO, "tools": [NOW, tool(strict=True)]}
    reply = with_tools(start, MockEngine(says("x"))).post("/v1/chat/completions", body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "tools[1].function.parameters"
    assert "#/properties/a/uniqueItems" in error["message"]


def test_calls_cannot_be_required_of_a_model_without_a_format(start: Start) -> None:
    body = {"messages": HELLO, "tools": [NOW], "tool_choice": "required"}
    reply = start(MockEngine(says("x"))).post("/v1/chat/completions", body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "tool_choice"
