"""What Cohere was recorded to say and to be asked, against its raw JSON."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from headrace.protocol.dialects.cohere import PROVIDER
from headrace.protocol.neutral.call import ChatCall, Message, Tool, ToolChoice
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import ReplyEnd
from headrace.protocol.neutral.part import Media, Part, Text, Thinking, ToolCall, ToolResult
from headrace.protocol.neutral.reply import ChatReply
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.cohere.samples import (
    answers,
    call,
    embeddings,
    errors,
    streams,
)
from tests.protocol.neutral.cassettes import Exchange
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings", "api_descriptions")

_FINISHES = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
}


def _texts(reply: ChatReply, kind: type[Text] | type[Thinking]) -> str:
    return "".join(part.text for part in reply.choices[0].parts if isinstance(part, kind))


def _calls(reply: ChatReply) -> list[tuple[str, str, Any]]:
    found = [part for part in reply.choices[0].parts if isinstance(part, ToolCall)]
    return [(one.id, one.name, json.loads(one.arguments)) for one in found]


def test_answers() -> None:
    found = answers()
    assert len(found) >= 21
    for exchange in found:
        raw = json.loads(exchange.body)
        reply = PROVIDER.read_reply(exchange.body)
        message = raw["message"]
        blocks = message.get("content") or []
        said = "".join(one.get("text", "") for one in blocks) + (message.get("tool_plan") or "")
        assert _texts(reply, Text) == said, exchange.at
        assert _texts(reply, Thinking) == "".join(one.get("thinking", "") for one in blocks)
        assert _calls(reply) == [
            (one["id"], one["function"]["name"], json.loads(one["function"]["arguments"]))
            for one in message.get("tool_calls") or []
        ], exchange.at
        assert reply.id == raw["id"]
        assert reply.choices[0].finish == _FINISHES[raw["finish_reason"]]
        assert reply.choices[0].extra.get("citations") == message.get("citations"), exchange.at
        _assert_billed(reply, raw["usage"]["billed_units"])


def test_streams() -> None:
    found = streams()
    assert len(found) >= 10
    for exchange in found:
        raw = _events(exchange)
        events = read_stream(PROVIDER.stream_reader(call()), exchange.body)
        assert_grammar(events)
        assert isinstance(events[-1], ReplyEnd), exchange.at
        reply = collected("cohere", events)
        messages = [one.get("delta", {}).get("message", {}) for one in raw]
        said = "".join(_piece(one) + one.get("tool_plan", "") for one in messages)
        assert _texts(reply, Text) == said, exchange.at
        assert _calls(reply) == _raw_calls(raw), exchange.at
        end = raw[-1]["delta"]
        assert reply.id == raw[0]["id"]
        assert reply.choices[0].finish == _FINISHES[end["finish_reason"]]
        _assert_billed(reply, end["usage"]["billed_units"])


def _events(exchange: Exchange) -> list[dict[str, Any]]:
    data = [line[5:] for line in exchange.body.decode().split("\n") if line.startswith("data:")]
    return [json.loads(one) for one in data if one.strip() != "[DONE]"]


def _piece(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content.get("text", "") if isinstance(content, dict) else ""


def _raw_calls(raw: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    calls: dict[int, dict[str, Any]] = {}
    for one in raw:
        if one["type"] == "tool-call-start":
            calls[one["index"]] = one["delta"]["message"]["tool_calls"]
        if one["type"] == "tool-call-delta":
            piece = one["delta"]["message"]["tool_calls"]["function"]["arguments"]
            calls[one["index"]]["function"]["arguments"] += piece
    return [
        (one["id"], one["function"]["name"], json.loads(one["function"]["arguments"]))
        for one in calls.values()
    ]


def _assert_billed(reply: ChatReply, billed: dict[str, Any]) -> None:
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == billed["input_tokens"]
    assert reply.usage.completion_tokens == billed["output_tokens"]


def test_requests() -> None:
    """What Cohere's own client sent is what is written for the same call."""
    for exchange in answers() + streams():
        raw = json.loads(exchange.request)
        told = PROVIDER.write_call(_read(raw), raw["model"])
        assert told.path == exchange.path
        assert told.dropped == ()
        body = json.loads(told.body)
        assert _plain(body) == _plain(raw), exchange.at
        assert_as_described(body, "cohere/cohere-openapi.yaml", "/v2/chat")


def _read(raw: dict[str, Any]) -> ChatCall:
    """A request by hand: fields that it does not know fail the test."""
    given = {name: value for name, value in raw.items() if value is not None}
    messages = given.pop("messages")
    instructions = [one["content"] for one in messages if one["role"] == "system"]
    functions = [one["function"] for one in given.pop("tools", [])]
    choice = given.pop("tool_choice", None)
    made = ChatCall(
        dialect="openai-chat",
        model=given.pop("model"),
        stream=given.pop("stream", False),
        stop=tuple(given.pop("stop_sequences", ())),
        temperature=given.pop("temperature", None),
        instructions=tuple(Text(text=one) for one in instructions),
        messages=tuple(_message(one) for one in messages if one["role"] != "system"),
        tools=tuple(Tool(**one) for one in functions),
        tool_choice=ToolChoice("required" if choice == "REQUIRED" else "none") if choice else None,
    )
    assert given == {}
    return made


def _message(raw: dict[str, Any]) -> Message:
    content = raw.get("content") or []
    blocks = [{"text": content}] if isinstance(content, str) else content
    parts: list[Part] = [_part(one) for one in blocks]
    if raw["role"] == "tool":
        texts = tuple(one for one in parts if isinstance(one, Text | Media))
        return Message(role="tool", parts=(ToolResult(call_id=raw["tool_call_id"], content=texts),))
    for one in raw.get("tool_calls") or []:
        parts.append(ToolCall(id=one["id"], **one["function"]))
    if raw.get("tool_plan"):
        parts.insert(0, Text(text=raw["tool_plan"]))
    return Message(role=raw["role"], parts=tuple(parts))


def _part(block: dict[str, Any]) -> Part:
    if "thinking" in block:
        return Thinking(text=block["thinking"])
    if "document" in block:
        pytest.fail("documents are compared by hand")
    return Text(text=block["text"])


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    """One way of saying what may be said in two."""
    told = {name: value for name, value in raw.items() if value is not None}
    told["messages"] = [_plain_message(one) for one in raw["messages"]]
    return told


def _plain_message(raw: dict[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in raw.items() if value not in (None, "", [])}
    if isinstance(told.get("content"), str):
        told["content"] = [{"type": "text", "text": told["content"]}]
    return told


def test_embeddings() -> None:
    found = embeddings()
    assert len(found) >= 4
    for exchange in found:
        raw = json.loads(exchange.body)
        reply = PROVIDER.read_embeddings((exchange.body,))
        numbers = raw["embeddings"]["float"]
        assert len(reply.vectors) == len(numbers) == len(raw["texts"])
        for vector, floats in zip(reply.vectors, numbers, strict=True):
            assert struct.unpack(f"<{len(floats)}f", vector) == pytest.approx(floats, rel=1e-6)
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == raw["meta"]["billed_units"]["input_tokens"]


def test_errors() -> None:
    found = errors()
    assert found
    for exchange in found:
        raw = json.loads(exchange.body)
        failure = PROVIDER.read_failure(exchange.status, exchange.headers, exchange.body)
        assert failure.message == raw["message"]
        assert failure.request_id in (raw.get("id"), exchange.headers.get("x-debug-trace-id"))
        kinds = {401: "authentication", 404: "not_found", 429: "rate_limit"}
        assert failure.kind == kinds.get(exchange.status, failure.kind), exchange.at
