"""Streams tell the service tier as soon as their providers do: a cut one is billed by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.anthropic.reply.stream_reader import AnthropicStreamReader
from headrace.protocol.dialects.gemini.reply.stream_reader import GeminiStreamReader
from headrace.protocol.dialects.openai_chat.reply.stream_reader import ChatStreamReader
from headrace.protocol.dialects.openai_responses.reply.stream_reader import ResponsesStreamReader
from headrace.protocol.neutral.collect import Collector, collected, replayed
from headrace.protocol.neutral.dialect import StreamReader
from headrace.protocol.neutral.event import Event, ReplyFailure, ReplyStart, ReplyUsage
from headrace.protocol.neutral.reply import ChatReply
from headrace.protocol.neutral.usage import TokenUsage

CHUNK = {
    "id": "c",
    "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}],
    "service_tier": "priority",
}
CREATED = {"type": "response.created", "response": {"id": "r", "service_tier": "priority"}}
STARTED = {
    "type": "message_start",
    "message": {"id": "m", "usage": {"input_tokens": 5, "service_tier": "priority"}},
}
GENERATED = {
    "candidates": [{"index": 0, "content": {"parts": [{"text": "Hello"}]}}],
    "usageMetadata": {"promptTokenCount": 5, "trafficType": "ON_DEMAND_PRIORITY"},
}


def data(*told: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in told)


def tier_of(events: list[Event]) -> str | None:
    return collected("", events).service_tier


@pytest.mark.parametrize(
    ("reader", "first"),
    [
        (ChatStreamReader(), CHUNK),
        (ResponsesStreamReader("o"), CREATED),
        (AnthropicStreamReader(), STARTED),
        (GeminiStreamReader(), GENERATED),
    ],
)
def test_a_cut_stream_has_told_it(reader: StreamReader, first: dict[str, Any]) -> None:
    events = reader.feed(data(first))
    assert isinstance(events[0], ReplyStart) and events[0].service_tier == "priority"
    assert tier_of(events) == tier_of(events + reader.end()) == "priority"


def test_what_the_end_tells_holds() -> None:
    last = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    for more, tier in (({}, "priority"), ({"service_tier": "default"}, "default")):
        events = ChatStreamReader().feed(
            data(CHUNK, finish, {**last, **more}) + b"data: [DONE]\n\n"
        )
        assert tier_of(events) == tier


def test_a_count_that_tells_none_leaves_the_one_before() -> None:
    collector = Collector("")
    collector.take(ReplyStart(id="", model="", service_tier="flex"))
    collector.take(ReplyUsage(usage=TokenUsage()))
    assert collector.reply().service_tier == "flex"


def test_a_response_that_begins_tells_auto_as_it_was_asked() -> None:
    reader = ResponsesStreamReader("o")
    created = {**CREATED, "response": {"id": "r", "service_tier": "auto"}}
    ended = {"id": "r", "status": "completed", "output": [], "service_tier": "priority",
             "usage": {"input_tokens": 5, "output_tokens": 1}}  # fmt: skip
    assert tier_of(reader.feed(data(created))) is None
    events = reader.feed(data({"type": "response.completed", "response": ended}))
    assert tier_of(events) == "priority"


@pytest.mark.parametrize("kind", ["response.failed", "response.completed"])
def test_a_response_that_failed_is_billed_as_it_says(kind: str) -> None:
    failed = {"status": "failed", "error": {"code": "server_error", "message": "no"},
              "service_tier": "flex", "usage": {"input_tokens": 5, "output_tokens": 1}}  # fmt: skip
    events = ResponsesStreamReader("o").feed(data(CREATED, {"type": kind, "response": failed}))
    counted, last = events[-2:]
    assert isinstance(last, ReplyFailure)
    usage = TokenUsage(input_tokens=5, output_tokens=1)
    assert counted == ReplyUsage(usage=usage, service_tier="flex")


def test_an_answer_that_is_whole_tells_it_without_usage_too() -> None:
    reply = ChatReply(dialect="x", id="", model="", choices=(), service_tier="flex")
    assert collected("x", replayed(reply)) == reply
