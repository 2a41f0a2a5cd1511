"""Answers that Google gave, read by this dialect and told again from the raw JSON."""

from __future__ import annotations

import json

import pytest

from headrace.protocol.dialects.gemini import PROVIDER
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import ChoiceEnd, Event, ReplyUsage
from headrace.protocol.neutral.part import Media, Opaque, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from tests.protocol.dialects.gemini.recorded import Told, answers
from tests.protocol.dialects.gemini.samples import a_call
from tests.protocol.neutral.cassettes import Exchange
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings")

_FINISH = {
    "STOP": "stop",
    "UNEXPECTED_TOOL_CALL": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "MODEL_ARMOR": "content_filter",
}


def test_whole_replies_say_what_the_json_says() -> None:
    for exchange in answers(streamed=False):
        _compare(exchange, PROVIDER.read_reply(exchange.body))


def test_streams_say_what_their_pieces_say() -> None:
    for exchange in answers(streamed=True):
        events = read_stream(PROVIDER.stream_reader(a_call()), exchange.body)
        assert_grammar(events)
        _compare(exchange, collected("gemini", events))


def test_long_streams_are_the_same_in_pieces_of_any_size() -> None:
    for exchange in answers(streamed=True):
        whole = read_stream(PROVIDER.stream_reader(a_call()), exchange.body)
        for size in (1 + len(exchange.body) // 7, 1021):
            cuts = range(0, len(exchange.body), size)
            cut = [exchange.body[at : at + size] for at in cuts]
            assert read_stream(PROVIDER.stream_reader(a_call()), *cut) == whole, exchange.at


def test_a_whole_reply_streamed_in_one_event_gives_the_same_answer() -> None:
    for exchange in answers(streamed=False):
        reply = PROVIDER.read_reply(exchange.body)
        if any(choice.finish is None for choice in reply.choices):
            continue
        event = b"data: " + json.dumps(json.loads(exchange.body)).encode() + b"\r\n\r\n"
        events = read_stream(PROVIDER.stream_reader(a_call()), event)
        assert collected("gemini", events) == reply, exchange.at


def test_a_stream_cut_short_is_a_failure_that_still_counts() -> None:
    for exchange in answers(streamed=True):
        first = exchange.body.find(b"\r\n\r\n") + 4
        if b"finishReason" in exchange.body[:first] or b"blockReason" in exchange.body[:first]:
            continue
        events = read_stream(PROVIDER.stream_reader(a_call()), exchange.body[:first])
        assert_grammar(events)
        assert _names(events)[-2:] == ["ReplyUsage", "ReplyFailure"], exchange.at


def _compare(exchange: Exchange, reply: ChatReply) -> None:
    told, at = Told(exchange), exchange.at
    assert reply.dialect == "gemini"
    assert reply.id == told.pieces[0].get("responseId", ""), at
    assert reply.model == told.pieces[0].get("modelVersion", ""), at
    if not told.candidates:
        assert reply.choices[0].finish == "content_filter", at
        assert reply.choices[0].extra["promptFeedback"]["blockReason"], at
        return
    (choice,) = reply.choices
    assert "".join(one.text for one in choice.parts if isinstance(one, Text)) == told.text, at
    thoughts = [one.text for one in choice.parts if isinstance(one, Thinking)]
    assert "".join(thoughts) == told.thoughts, at
    calls = [one for one in choice.parts if isinstance(one, ToolCall)]
    assert [(one.name, json.loads(one.arguments)) for one in calls] == [
        (one["name"], one.get("args", {})) for one in told.calls
    ], at
    assert all(
        call.id == raw["id"] if "id" in raw else call.id.startswith("call_")
        for call, raw in zip(calls, told.calls, strict=True)
    ), at
    assert len({one.id for one in calls}) == len(calls), at
    assert _signatures(reply) == told.signatures, at
    if told.reason is not None:
        expected = _FINISH[told.reason]
        expected = "tool_calls" if expected == "stop" and calls else expected
        assert choice.finish == expected, at
    _compare_usage(reply, told, at)


def _compare_usage(reply: ChatReply, told: Told, at: str) -> None:
    if "promptTokenCount" not in told.usage:
        return
    usage, raw = reply.usage, told.usage
    assert usage is not None, at
    tool = raw.get("toolUsePromptTokenCount", 0)
    assert usage.prompt_tokens == raw["promptTokenCount"] + tool, at
    assert usage.cache_read_tokens == raw.get("cachedContentTokenCount", 0), at
    assert usage.reasoning_tokens == raw.get("thoughtsTokenCount", 0), at
    assert usage.output_tokens == raw.get("candidatesTokenCount", 0), at
    assert usage.prompt_tokens + usage.completion_tokens == raw["totalTokenCount"], at


def _signatures(reply: ChatReply) -> list[str]:
    found = []
    for part in reply.choices[0].parts:
        if isinstance(part, Opaque):
            found += [part.value["thoughtSignature"]] if "thoughtSignature" in part.value else []
        elif isinstance(part, Text | Thinking | ToolCall | Media) and part.signature is not None:
            assert part.signature.origin == "gemini"
            found.append(part.signature.value)
    return found


def _names(events: list[Event]) -> list[str]:
    assert not any(isinstance(one, ChoiceEnd) for one in events)
    assert sum(isinstance(one, ReplyUsage) for one in events) == 1
    return [type(one).__name__ for one in events]
