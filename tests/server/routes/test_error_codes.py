"""Errors of a conversation that a program can act on: their codes, and what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.chat.test_tools import HELLO, WEATHER, with_tools
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]

CHAT = "/v1/chat/completions"
OTHER = {"type": "function", "function": {"name": "other"}}


def refused(server: Running, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = server.post(path, body)
    assert reply.status_code == 400, reply.text
    error: dict[str, Any] = reply.json()["error"]
    return error


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tool_choice": "required"}, "tool_choice", "invalid_tool_choice"),
        ({"tools": [WEATHER], "tool_choice": OTHER}, "tool_choice.function.name",
         "invalid_tool_choice"),
        ({"tool_choice": "f"}, "tool_choice", "unsupported"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported"),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0].type", "unsupported"),
        ({"tools": [{"type": "function", "name": "f", "parameters": {}}]}, "tools[0].function",
         "invalid_tool"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"n": 0}, "n", "integer_below_min_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"allowed_token_ids": [120], "bad_words": ["x"]}, "allowed_token_ids", "no_token_left"),
        ({"tools": [WEATHER], "tool_choice": "any"}, "tool_choice", "unsupported"),
        ({"tools": [WEATHER], "tool_choice": {"type": "custom"}}, "tool_choice", "unsupported"),
        ({"tools": [WEATHER],
          "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "any", "tools": []}}},
         "tool_choice.allowed_tools.mode", "unsupported"),
        ({"tools": [WEATHER],
          "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
         "tool_choice.allowed_tools.tools", "invalid_tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "invalid_tool"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort", "unsupported"),
        ({"reasoning": {"effort": "extreme"}}, "reasoning.effort", "unsupported"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
         "messages[0].content[0].type", "unsupported"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role", "unsupported"),
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
    ],
)  # fmt: skip
def test_a_conversation(start: Start, fields: dict[str, Any], param: str, code: str) -> None:
    server = with_tools(start, MockEngine(says("x")))
    error = refused(server, CHAT, {"messages": HELLO, **fields})
    assert (error["param"], error["code"]) == (param, code)
    assert error["message"].startswith(f"{param}: ")
    assert server.engine.submitted == []


def test_a_content_type(start: Start) -> None:
    server = start(MockEngine(says("x")))
    reply = server.client.post(CHAT, content=b"{}", headers={"content-type": "text/plain"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("path", "fields", "instead"),
    [
        (CHAT, {"function_call": {"name": "f"}}, "`tool_choice`"),
        (CHAT, {"n_predict": 5}, "`max_tokens`"),
        ("/v1/completions", {"suffix": "x"}, "`/infill`"),
        ("/v1/completions", {"n_probs": 5}, "`logprobs`"),
    ],
)  # fmt: skip
def test_a_field_that_another_does_the_work_of(
    start: Start, path: str, fields: dict[str, Any], instead: str
) -> None:
    server = start(MockEngine(says("x")))
    body = {"messages": HELLO} if path == CHAT else {"prompt": "x"}
    error = refused(server, path, {**body, **fields})
    assert error["code"] == "unsupported"
    assert f"is not supported; use {instead} (" in error["message"]


def test_a_number_that_the_engine_holds_against_its_range(start: Start) -> None:
    error = refused(start(MockEngine(says("x"))), CHAT, {"messages": HELLO, "top_p": 2})
    assert (error["param"], error["code"]) == ("top_p", "decimal_above_max_value")
