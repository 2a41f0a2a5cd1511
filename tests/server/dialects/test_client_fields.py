"""Errors of every dialect name the field that the client wrote, and none of our own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import MODEL
from tests.server.dialects.conftest import SCHEMA, Agent, message, turn
from tests.server.mock_engine import says

BAD = {"type": "object", "properties": {"a": {"not": {}}}}
UNCOMPILED = {"type": "object", "properties": {"a": {"type": 7}}}
ANTHROPIC, OLLAMA, RESPONSES = "/v1/messages", "/api/chat", "/v1/responses"


def _item(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": "x", **fields}


def _function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **fields}


def _tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **fields}}


def _form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "schema": schema}


_NAMED = [
    (RESPONSES, _item(text={"format": {**_form(BAD), "name": "a"}}), "text.format"),
    (RESPONSES, _item(text={"format": {**_form(UNCOMPILED), "name": "a"}}), "text.format"),
    (RESPONSES, _item(text={"format": {"type": "xml"}}), "text.format.type"),
    (RESPONSES, _item(text={"format": {"type": "json_object"}}, guided_regex="a"), "guided_regex"),
    (RESPONSES, _item(reasoning={"effort": "extreme"}), "reasoning.effort"),
    (RESPONSES, _item(text={"verbosity": "endless"}), "text.verbosity"),
    (RESPONSES, _item(tools=[_function("f"), _function("f")]), "tools[1].name"),
    (RESPONSES, _item(tools=[_function("a b")]), "tools[0].name"),
    (RESPONSES, _item(tools=[_function("f"), _function("g", parameters=BAD, strict=True)]),
     "tools[1].parameters"),
    (RESPONSES, _item(tools=[_function("f"), {"type": "web_search"}]), "tools[1].type"),
    (RESPONSES, _item(tools=[{"type": "custom", "name": "c"}]), "tools[0].type"),
    (RESPONSES, _item(tools=[_function("f")], tool_choice={"type": "function", "name": "g"}),
     "tool_choice"),
    (ANTHROPIC, message(output_config={"format": _form(BAD)}), "output_config.format"),
    (ANTHROPIC, message(output_config={"format": _form(UNCOMPILED)}), "output_config.format"),
    (ANTHROPIC, message(output_format=_form(BAD)), "output_format"),
    (ANTHROPIC, message(output_config={"format": _form({})}, guided_regex="a"), "guided_regex"),
    (ANTHROPIC, message(tools=[{"name": "f", "input_schema": BAD, "strict": True}]),
     "tools[0].input_schema"),
    (ANTHROPIC, message(tools=[{"name": "f", "input_schema": SCHEMA}] * 2), "tools[1].name"),
    (ANTHROPIC, message(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
     "tools[0].type"),
    (OLLAMA, turn(format=BAD), "format"),
    (OLLAMA, turn(format="json", guided_regex="a"), "guided_regex"),
    (OLLAMA, turn(tools=[_tool("f"), _tool("a b")]), "tools[1].function.name"),
    (OLLAMA, turn(tools=[_tool("f", parameters=BAD, strict=True)]), "tools[0].function.parameters"),
    ("/api/generate", {"model": MODEL, "prompt": "x", "format": UNCOMPILED}, "format"),
]  # fmt: skip
_OURS = ("response_format", "json_schema.schema", "max_completion_tokens", "[?@")


@pytest.mark.parametrize(("path", "body", "param"), _NAMED)
def test_the_clients_own_field_is_named(
    agent: Agent, path: str, body: dict[str, Any], param: str
) -> None:
    server = agent(says("hello"))
    reply = server.post(path, body)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    told = error if isinstance(error, str) else error["message"]
    assert told.startswith((f"{param}: ", f"{param} ")) or f", {param}: " in told, told
    assert not any(name in told for name in _OURS), told
    if path == RESPONSES:
        assert error["param"] == param
        assert error["code"] is not None or param == "tools[0].name"
    assert server.engine.submitted == []


def test_two_forms_are_named_as_the_client_wrote_both(agent: Agent) -> None:
    server = agent(says("hello"))
    for path, body, form in (
        (RESPONSES, _item(text={"format": {"type": "json_object"}}), "text.format"),
        (ANTHROPIC, message(output_config={"format": _form({})}), "output_config.format"),
        (OLLAMA, turn(format="json"), "format"),
    ):
        reply = server.post(path, {**body, "guided_regex": "a"})
        assert f"{form}, guided_regex: an answer can be held to one grammar" in reply.text
