"""Recorded exchanges with Bedrock, replayed; what is expected is taken from their raw JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from headrace.protocol.dialects.bedrock import PROVIDER
from headrace.protocol.dialects.bedrock.reply.stream_reader import ConverseStreamReader
from headrace.protocol.neutral.collect import collected, replayed
from headrace.protocol.neutral.event import ReplyEnd
from headrace.protocol.neutral.part import Media, Opaque, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from tests.protocol.dialects.bedrock.recorded import (
    FILLER,
    RawEvent,
    call_of,
    converse,
    model_of,
    plain,
    raw_events,
    request_of,
)
from tests.protocol.dialects.bedrock.service_model import faults
from tests.protocol.neutral.streams import assert_grammar, read_stream

pytestmark = pytest.mark.usefixtures("recordings")

FINISHES = {
    "end_turn": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
}


def _check(reply: ChatReply, content: list[dict[str, Any]], raw: dict[str, Any], at: str) -> None:
    """`raw`: the fields of a whole reply."""
    (choice,) = reply.choices
    texts = [part.text for part in choice.parts if isinstance(part, Text)]
    assert texts == [block["text"] for block in content if block.get("text")], at
    uses = [block["toolUse"] for block in content if "toolUse" in block]
    called = [part for part in choice.parts if isinstance(part, ToolCall)]
    assert [(one.id, one.name, json.loads(one.arguments)) for one in called] == [
        (use["toolUseId"], use["name"], use["input"])
        for use in uses
        if use.get("type") != "server_tool_use"
    ], at
    thoughts = [block["reasoningContent"] for block in content if "reasoningContent" in block]
    thinking = [part for part in choice.parts if isinstance(part, Thinking)]
    assert [part.text for part in thinking] == [
        one.get("reasoningText", {}).get("text", "") for one in thoughts
    ], at
    assert [part.redacted for part in thinking] == ["redactedContent" in one for one in thoughts]
    signatures = [part.signature.value for part in thinking if part.signature and part.text]
    assert signatures == [
        one["reasoningText"]["signature"]
        for one in thoughts
        if "signature" in one.get("reasoningText", {})
    ], at
    opaque = [part.value for part in choice.parts if isinstance(part, Opaque)]
    assert opaque == [
        block
        for block in content
        if "toolResult" in block or block.get("toolUse", {}).get("type") == "server_tool_use"
    ], at
    assert not any(isinstance(part, Media) for part in choice.parts)
    assert choice.finish == FINISHES[raw["stopReason"]], at
    assert choice.extra.get("trace") == raw.get("trace"), at
    usage = reply.usage
    assert usage is not None
    told = raw["usage"]
    assert usage.input_tokens == told["inputTokens"], at
    assert usage.output_tokens == told["outputTokens"], at
    assert usage.cache_read_tokens == told.get("cacheReadInputTokens", 0), at
    written = told.get("cacheWriteInputTokens", 0)
    assert usage.cache_write_tokens + usage.cache_write_1h_tokens == written, at
    # That cached tokens are not among the input's is what makes this sum come out.
    assert usage.prompt_tokens + usage.completion_tokens == told["totalTokens"], at


def test_whole_replies() -> None:
    seen = 0
    for one in converse(streamed=False):
        if one.status != 200:
            continue
        raw = json.loads(one.body)
        reply = PROVIDER.read_reply(one.body)
        _check(reply, raw["output"]["message"]["content"], raw, one.at)
        assert collected("bedrock", replayed(reply)) == reply, one.at
        seen += 1
    assert seen > 80


def _blocks(events: list[RawEvent]) -> list[dict[str, Any]]:
    """The content of a whole reply that says the same as a stream."""
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.name == "contentBlockStart":
            blocks[event.fields["contentBlockIndex"]] = json.loads(
                json.dumps(event.fields["start"])
            )
        elif event.name == "contentBlockDelta":
            _grow(blocks.setdefault(event.fields["contentBlockIndex"], {}), event.fields["delta"])
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"].get("input") or "{}")
    return [block for _, block in sorted(blocks.items())]


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        block["toolUse"]["input"] = block["toolUse"].get("input", "") + delta["toolUse"]["input"]
    elif "toolResult" in delta:
        block["toolResult"].setdefault("content", []).extend(delta["toolResult"])
    else:
        thought = delta["reasoningContent"]
        into = block.setdefault("reasoningContent", {})
        if "redactedContent" in thought:
            into["redactedContent"] = thought["redactedContent"]
        else:
            told = into.setdefault("reasoningText", {"text": ""})
            for name, value in thought.items():
                told[name] = told.get(name, "") + value


def test_streams() -> None:
    seen = 0
    for one in converse(streamed=True):
        if one.status != 200:
            continue
        events = read_stream(ConverseStreamReader(), one.body)
        assert_grammar(events)
        assert events[-1] == ReplyEnd(), one.at
        raw = raw_events(one.body)
        fields = {name: value for event in raw for name, value in event.fields.items()}
        _check(collected("bedrock", events), _blocks(raw), fields, one.at)
        seen += 1
    assert seen > 12


def test_a_stream_and_the_same_answer_whole_are_one() -> None:
    """Streams written out as whole replies read the same."""
    for one in converse(streamed=True):
        if one.status != 200:
            continue
        reader = ConverseStreamReader()
        events = reader.feed(one.body) + reader.end()
        raw = raw_events(one.body)
        fields = {name: value for event in raw for name, value in event.fields.items()}
        body = {**fields, "output": {"message": {"role": "assistant", "content": _blocks(raw)}}}
        streamed, whole = (
            collected("bedrock", events),
            PROVIDER.read_reply(json.dumps(body).encode()),
        )
        assert _with_plain_arguments(streamed) == _with_plain_arguments(whole), one.at


def _with_plain_arguments(reply: ChatReply) -> ChatReply:
    """Arguments come as text in streams, as JSON in whole replies."""
    (choice,) = reply.choices
    parts = tuple(
        structs.replace(part, arguments=json.dumps(json.loads(part.arguments or "{}")))
        if isinstance(part, ToolCall)
        else part
        for part in choice.parts
    )
    return structs.replace(reply, choices=(structs.replace(choice, parts=parts),))


def test_requests_are_written_as_they_were_sent() -> None:
    seen = 0
    for streamed in (False, True):
        for one in converse(streamed=streamed):
            if one.status != 200:
                continue  # AWS refused it
            sent = request_of(one)
            model = model_of(one)
            written = PROVIDER.write_call(call_of(sent, model, stream=streamed), model)
            assert written.path == one.path
            body = json.loads(written.body)
            assert faults("ConverseStreamRequest" if streamed else "ConverseRequest", body) == [], (
                one.at
            )
            schema = body.get("outputConfig")
            if schema:
                definition = schema["textFormat"]["structure"]["jsonSchema"]
                definition["schema"] = json.loads(definition["schema"])
            wanted = plain(sent)
            for block in (part for turn in wanted["messages"] for part in turn["content"]):
                if block.get("video", {}).get("format") == "video/mp4":
                    block["video"]["format"] = "mp4"  # recorded from a mock: AWS refuses it
            if "anthropic." in model:
                _part_documents(wanted["messages"])
            assert body == wanted, one.at
            assert set(written.dropped) <= {"output.schema.minLength"}, one.at
            seen += 1
    assert seen > 100


def _part_documents(turns: list[dict[str, Any]]) -> None:
    """Recorded both ways: documents beside the results of tools, and after a "." of their own."""
    for number, turn in enumerate(turns):
        results = [block for block in turn["content"] if "toolResult" in block]
        rest = [block for block in turn["content"] if "toolResult" not in block]
        if turn["role"] == "user" and results and any("document" in block for block in rest):
            turns[number : number + 1] = [
                {"role": "user", "content": results},
                {"role": "assistant", "content": FILLER},
                {"role": "user", "content": rest},
            ]


def test_errors() -> None:
    seen = 0
    for streamed in (False, True):
        for one in converse(streamed=streamed):
            if one.status == 200:
                continue
            failure = PROVIDER.read_failure(one.status, one.headers, one.body)
            message = json.loads(one.body)["message"]
            no_model = "identifier is invalid" in message
            assert failure.kind == ("not_found" if no_model else "bad_request"), one.at
            assert failure.message == message
            assert failure.status == one.status
            seen += 1
    assert seen >= 2
