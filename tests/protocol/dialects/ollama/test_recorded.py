"""Recorded exchanges with real Ollama servers."""

from __future__ import annotations

import json

import pytest

from headrace.protocol.dialects.ollama import CLIENT, PROVIDER, OllamaStreamReader
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import ReplyEnd
from headrace.protocol.neutral.part import Text, ToolCall, ToolResult
from tests.protocol.dialects.ollama.samples import call
from tests.protocol.neutral.cassettes import Exchange, exchanges
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings")


def recorded() -> list[Exchange]:
    """Chats; the same exchange is recorded for several settings of what recorded it."""
    found = exchanges("openllmetry.tar.gz", "opentelemetry-instrumentation-ollama")
    chats = [one for one in found if one.path == "/api/chat"]
    assert len(chats) >= 15
    return list({(one.request, one.body): one for one in chats}.values())


def test_whole_answers() -> None:
    whole = [one for one in recorded() if not one.streamed]
    assert len(whole) >= 3
    for exchange in whole:
        told = json.loads(exchange.body)
        # Left out where the prompt was still in memory.
        told.setdefault("prompt_eval_count", 0)
        reply = PROVIDER.read_reply(exchange.body)
        assert reply.choices[0].parts == (Text(text=told["message"]["content"]),), exchange.at
        assert reply.choices[0].finish == told["done_reason"] == "stop"
        assert reply.model == told["model"]
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == told["prompt_eval_count"]
        assert reply.usage.completion_tokens == told["eval_count"]
        asked = CLIENT.read_call(exchange.request, exchange.path, {})
        again = json.loads(CLIENT.write_reply(reply, asked))
        del again["created_at"], told["created_at"]
        assert again == told, exchange.at


def test_streams() -> None:
    streams = [one for one in recorded() if one.streamed]
    assert len(streams) >= 2
    for exchange in streams:
        lines = [json.loads(line) for line in exchange.body.splitlines() if line.strip()]
        events = read_stream(OllamaStreamReader(), exchange.body)
        assert_grammar(events)
        assert isinstance(events[-1], ReplyEnd)
        reply = collected("ollama", events)
        text = "".join(one["message"]["content"] for one in lines)
        assert reply.choices[0].parts == (Text(text=text),), exchange.at
        assert text
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == lines[-1].get("prompt_eval_count", 0)
        assert reply.usage.completion_tokens == lines[-1]["eval_count"]
        assert reply.choices[0].finish == "stop"
        writer = CLIENT.stream_writer(call())
        written = b"".join(writer.write(event) for event in events)
        assert collected("ollama", read_stream(OllamaStreamReader(), written)) == reply


def test_requests_are_read_and_written_as_they_were() -> None:
    for exchange in recorded():
        told = json.loads(exchange.request)
        asked = CLIENT.read_call(exchange.request, exchange.path, {})
        assert asked.model == told["model"]
        assert asked.stream == told["stream"] == exchange.streamed
        written = PROVIDER.write_call(asked, told["model"])
        again = json.loads(written.body)
        assert written.dropped == ()
        assert written.path == exchange.path
        for name in ("model", "stream"):
            assert again[name] == told[name]
        for one, other in zip(again["messages"], told["messages"], strict=True):
            assert {**one, **other, "tool_calls": 0} == {**one, "tool_calls": 0}, exchange.at


def test_a_tools_turn_without_ids() -> None:
    turns = [one for one in recorded() if b"tool_calls" in one.request]
    assert turns
    for exchange in turns:
        asked = CLIENT.read_call(exchange.request, exchange.path, {})
        called, answered = (message.parts[0] for message in asked.messages)
        assert isinstance(called, ToolCall)
        assert isinstance(answered, ToolResult)
        assert called.id == answered.call_id == "call_0_0"
        assert called.name == answered.name == "get_current_weather"
        assert json.loads(called.arguments) == {"location": "San Francisco"}
