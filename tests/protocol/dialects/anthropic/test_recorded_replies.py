"""Recorded answers, read and written again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.anthropic import CLIENT, PROVIDER
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected, replayed
from headrace.protocol.neutral.part import Opaque, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from tests.protocol.dialects.anthropic.recorded import assembled, counts, messages, plain
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings")

CALL = ChatCall(dialect="anthropic", model="m", messages=())

FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "pause",
}


def check_against_raw(reply: ChatReply, raw: dict[str, Any]) -> None:
    """The reply holds what the raw message says."""
    (choice,) = reply.choices
    assert (reply.id, reply.model) == (raw["id"], raw["model"])
    assert choice.finish == FINISHES[raw["stop_reason"]]
    blocks = raw["content"]
    assert len(choice.parts) == len(blocks)
    for part, block in zip(choice.parts, blocks, strict=True):
        match block["type"]:
            case "text":
                assert isinstance(part, Text)
                assert part.text == block["text"]
                assert part.extra.get("citations", []) == (block.get("citations") or [])
            case "tool_use":
                assert isinstance(part, ToolCall)
                assert (part.id, part.name) == (block["id"], block["name"])
                assert json.loads(part.arguments) == block["input"]
            case "thinking":
                assert isinstance(part, Thinking)
                assert part.text == block["thinking"]
                assert part.signature is not None
                assert part.signature.value == block["signature"]
            case "redacted_thinking":
                assert isinstance(part, Thinking)
                assert part.redacted
                assert part.signature is not None
                assert part.signature.value == block["data"]
            case _:
                assert part == Opaque("anthropic", block)
    check_usage(reply, raw["usage"])


def check_usage(reply: ChatReply, raw: dict[str, Any]) -> None:
    """The lines add up to what the raw usage says."""
    usage = reply.usage
    assert usage is not None
    assert usage.input_tokens == raw["input_tokens"]
    assert usage.cache_read_tokens == (raw.get("cache_read_input_tokens") or 0)
    written = usage.cache_write_tokens + usage.cache_write_1h_tokens
    assert written == (raw.get("cache_creation_input_tokens") or 0)
    assert usage.completion_tokens == raw["output_tokens"]
    thoughts = (raw.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    assert usage.reasoning_tokens == thoughts
    assert reply.service_tier == raw.get("service_tier")


def test_recorded_replies_say_what_their_json_says() -> None:
    found = messages()
    for exchange in found:
        raw = json.loads(exchange.body)
        check_against_raw(PROVIDER.read_reply(exchange.body), raw)
    assert len(found) >= 100


def test_recorded_replies_come_out_as_they_came() -> None:
    for exchange in messages():
        raw = json.loads(exchange.body)
        written = json.loads(CLIENT.write_reply(PROVIDER.read_reply(exchange.body), CALL))
        # What is written beside the raw fields are zeros of counts that older replies left out.
        raw["usage"] = written["usage"] | raw["usage"]
        assert plain(written) == plain(raw), exchange.at


def test_recorded_replies_as_streams() -> None:
    for exchange in messages():
        reply = PROVIDER.read_reply(exchange.body)
        events = list(replayed(reply))
        writer = CLIENT.stream_writer(CALL)
        stream = b"".join(writer.write(event) for event in events)
        raw = json.loads(exchange.body)
        written = assembled(stream)
        raw["usage"] = written["usage"] | raw["usage"]
        assert plain(written) == plain(raw), exchange.at
        again = read_stream(PROVIDER.stream_reader(CALL), stream)
        assert_grammar(again)
        assert collected("anthropic", again) == reply, exchange.at


def test_recorded_counts() -> None:
    for exchange in counts():
        tokens = PROVIDER.read_token_count(exchange.body)
        raw = json.loads(exchange.body)
        assert tokens == raw["input_tokens"] > 0
        assert json.loads(CLIENT.write_token_count(tokens))["input_tokens"] == tokens
