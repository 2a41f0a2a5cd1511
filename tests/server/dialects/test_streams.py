"""Streams in other dialects: kept alive, failed, ended and left."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import ollama
import pytest

from headrace.config import ServerConfig
from headrace.engine.messages import Output, Submit
from tests.server.conftest import MODEL, Running
from tests.server.dialects.conftest import CALLS, SCHEMA, Agent, message, turn
from tests.server.mock_engine import MockEngine, output, says

Start = Callable[..., Running]

PATHS = [
    ("/v1/messages", message(stream=True)),
    ("/api/chat", turn()),
    ("/api/generate", {"model": MODEL, "prompt": "x"}),
]


async def _gives_up(submit: Submit) -> AsyncIterator[Output]:
    yield output(submit, [*b"ab"])
    yield Output(submit.request_id, [], finish_reason="error", error="block 7 is damaged")


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_a_failure_ends_a_stream_in_form(start: Start, path: str, body: Any) -> None:
    running = start(MockEngine(_gives_up))
    reply = running.post(path, body)
    assert reply.status_code == 200
    last = reply.text.strip().splitlines()[-1].removeprefix("data: ")
    error = json.loads(last)
    if path == "/v1/messages":
        assert error["type"] == "error" and error["error"]["type"] == "api_error"
        assert "message_stop" not in reply.text
        error = error["error"]["message"]
    else:
        error = error["error"]
        assert '"done":true' not in reply.text
    assert "block 7 is damaged" in error
    whole = running.post(path, {**body, "stream": False})
    assert whole.status_code == 500 and "block 7 is damaged" in whole.text


def test_packages_raise_what_a_stream_says(start: Start) -> None:
    running = start(MockEngine(_gives_up))
    client = anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0)
    with pytest.raises(anthropic.APIStatusError, match="block 7 is damaged"):
        list(client.messages.create(**message(stream=True)))
    with pytest.raises(ollama.ResponseError, match="block 7 is damaged"):
        list(ollama.Client(host=running.url).chat(**turn(stream=True)))


def test_silence_is_broken_by_pings_where_there_are_any(start: Start) -> None:
    config = ServerConfig(sse_keep_alive=0.05)
    running = start(MockEngine(says("ab", delay_s=0.15)), config=config)
    assert "event: ping" in running.post("/v1/messages", message(stream=True)).text
    client = anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0)
    with client.messages.stream(**message()) as stream:
        assert stream.get_final_text() == "ab"
    lines = running.post("/api/chat", turn()).text.splitlines()
    assert [json.loads(line)["message"]["content"] for line in lines] == ["a", "b", ""]


def test_an_administrator_ends_a_call_in_form(start: Start) -> None:
    config = ServerConfig(admin_api_key="admin")
    running = start(MockEngine(says("a" * 100, delay_s=0.05)), config=config)
    headers = {"authorization": "Bearer admin"}
    with running.client.stream(
        "POST", "/v1/messages", json=message(stream=True), headers={"x-request-id": "mine"}
    ) as reply:
        pieces = reply.iter_text()
        text = next(pieces)
        ended = running.post("/admin/cancel", {"request_id": "mine"}, headers=headers)
        assert ended.status_code == 200
        text += "".join(pieces)
    assert 'event: error\ndata: {"type":"error"' in text
    assert "cancelled by the server's administrator" in text


CUT_CALL = CALLS[: CALLS.index("ln")]
"""A call that breaks off within its arguments."""


def test_a_broken_call_is_one_line_of_the_log_without_its_text(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    running = agent(says(CALLS.replace("[1, 2]", "one")))
    tool = {"name": "look", "parameters": SCHEMA}
    tools = [{"type": "function", "function": tool}]
    choice = running.chat(tools=tools)["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["message"]["tool_calls"]
    own = message(tools=[{"name": "look", "input_schema": SCHEMA}])
    told = running.post("/v1/messages", own).json()
    assert told["stop_reason"] == "tool_use" and "INVALID_JSON" in told["content"][-1]["input"]
    assert '"stop_reason":"tool_use"' in running.post("/v1/messages", {**own, "stream": True}).text
    told = running.post("/api/chat", turn(tools=tools, stream=False)).json()
    assert "tool_calls" not in told["message"] and "Köln" in told["message"]["content"]
    own_tools = [{"type": "function", **tool}]
    told = running.post("/v1/responses", {"input": "x", "tools": own_tools}).json()
    assert (told["status"], told["output"][-1]["status"]) == ("completed", "incomplete")
    lines = [each.getMessage() for each in caplog.records if "tool calls are" in each.getMessage()]
    assert len(lines) == 5
    assert all("strict: true" in line and "Köln" not in line for line in lines)
    running.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert sum("tool calls are" in each.getMessage() for each in caplog.records) == 5


def test_a_call_that_was_cut_is_no_whole_call_in_any_dialect(agent: Agent) -> None:
    running = agent(says(CUT_CALL, ends=False))
    most = len(CUT_CALL.encode())
    tool = {"name": "look", "parameters": SCHEMA}
    cut = '{"city": "Kö'
    told = running.chat(max_tokens=most, tools=[{"type": "function", "function": tool}])
    (choice,) = told["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == cut

    fields = {"max_tokens": most, "tools": [{"name": "look", "input_schema": SCHEMA}]}
    told = running.post("/v1/messages", message(**fields)).json()
    assert told["stop_reason"] == "max_tokens"
    assert told["content"][0]["input"] == {"INVALID_JSON": cut}

    tools = [{"type": "function", "function": tool}]
    body = turn(tools=tools, stream=False, options={"num_predict": most})
    told = running.post("/api/chat", body).json()
    assert told["done_reason"] == "length"
    assert "tool_calls" not in told["message"] and cut in told["message"]["content"]
