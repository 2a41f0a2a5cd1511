"""Chat completions with functions in place of tools, as clients from before these send them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.chat.test_tools import CALL, WEATHER, with_tools
from tests.server.conftest import Running, events_of
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]

FUNCTIONS = [WEATHER["function"]]
CALLED = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
    },
    {"role": "function", "name": "get_weather", "content": "rain"},
]


def test_functions_are_called_and_the_call_has_its_old_form(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    reply = server.chat(functions=FUNCTIONS)
    assert reply["object"] == "chat.completion" and reply["id"].startswith("chatcmpl-")
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {
        "name": "get_weather",
        "arguments": '{"city": "Köln"}',
    }
    assert "tool_calls" not in choice["message"]


def test_a_stream_has_the_old_form_too(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    body = {"messages": CALLED[:1], "functions": FUNCTIONS, "stream": True}
    events = events_of(server.post("/v1/chat/completions", body))
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    calls = [delta["function_call"] for delta in deltas if delta.get("function_call")]
    assert calls[0]["name"] == "get_weather"
    assert "".join(call.get("arguments") or "" for call in calls) == '{"city": "Köln"}'
    ends = [choice["finish_reason"] for event in events for choice in event["choices"]]
    assert ends[-1] == "function_call"


@pytest.mark.parametrize("fields", [{}, {"functions": FUNCTIONS}])
def test_a_conversation_in_which_functions_were_called_reaches_the_template(
    start: Start, fields: dict[str, Any]
) -> None:
    engine = MockEngine(says("It rains."))
    reply = with_tools(start, engine).chat(messages=CALLED, **fields)
    assert reply["choices"][0]["message"]["content"] == "It rains."
    prompt = bytes(engine.submitted[0].prompt_token_ids).decode()
    assert 'get_weather({"city": "Oslo"})' in prompt
    assert "tool:rain" in prompt


def test_tools_win_over_functions_and_an_unknown_function_is_refused(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    for choice in ("none", "auto"):
        assert server.chat(tools=[WEATHER], function_call=choice)["choices"]
    orphan = [*CALLED[:1], {"role": "function", "name": "other", "content": "x"}]
    refused = server.post("/v1/chat/completions", {"messages": orphan})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "messages[1].name"


def test_a_named_function_is_a_named_tool(start: Start) -> None:
    engine = MockEngine(says('{"city": "Oslo"}'))
    reply = with_tools(start, engine).chat(
        functions=FUNCTIONS, function_call={"name": "get_weather"}
    )
    assert engine.submitted[0].params.grammar is not None
    assert reply["choices"]
