"""What clients of Ollama read, whoever answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.ollama import CLIENT, PROVIDER, Durations, OllamaClient
from headrace.protocol.dialects.ollama.reply import stream_writer
from headrace.protocol.dialects.ollama.reply.stream_reader import OllamaStreamReader
from headrace.protocol.neutral import carried_id
from headrace.protocol.neutral.collect import collected, replayed
from headrace.protocol.neutral.dialect import AnswerTooLongError
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.reply import ChatReply, Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.ollama.samples import assert_as_described, call
from tests.protocol.neutral.streams import read_stream

NOW = "2026-11-22T11:00:00.5Z"
USAGE = TokenUsage(input_tokens=7, cache_read_tokens=3, output_tokens=5, reasoning_tokens=2)


def reply(*parts: Any, finish: Any = "stop", **more: Any) -> ChatReply:
    choice = Choice(parts=parts, finish=finish, **more)
    return ChatReply(
        dialect="anthropic", id="msg_1", model="claude", choices=(choice,), usage=USAGE
    )


def whole(told: ChatReply, client: OllamaClient = CLIENT) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(client.write_reply(told, call()))
    return written


def stream(events: list[Event], client: OllamaClient = CLIENT) -> list[dict[str, Any]]:
    writer = client.stream_writer(call(model="asked"))
    raw = b"".join(writer.write(event) for event in events)
    assert raw.endswith(b"\n")
    assert all(writer.write(event) == b"" for event in events)
    return [json.loads(line) for line in raw.decode().splitlines()]


def test_a_whole_answer() -> None:
    client = OllamaClient(NOW, Durations(9, 1, 2, 3))
    parts = (
        Thinking(text="Hm."),
        Text(text="Hello"),
        ToolCall(id="c1", name="f", arguments='{"a": 1.10,\n"b": []}'),
        ToolCall(id="c2", name="g", arguments=""),
        Media(kind="image", data="AAAA"),
    )
    raw = client.write_reply(reply(*parts, finish="tool_calls"), call())
    told = json.loads(raw)
    assert told == {
        "model": "claude",
        "created_at": NOW,
        "message": {
            "role": "assistant",
            "content": "Hello",
            "thinking": "Hm.",
            "images": ["AAAA"],
            "tool_calls": [
                {
                    "id": "c1",
                    "function": {"index": 0, "name": "f", "arguments": {"a": 1.1, "b": []}},
                },
                {"id": "c2", "function": {"index": 1, "name": "g", "arguments": {}}},
            ],
        },
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 10,
        "eval_count": 7,
        "total_duration": 9,
        "load_duration": 1,
        "prompt_eval_duration": 2,
        "eval_duration": 3,
    }
    assert b"1.10" in raw
    assert_as_described(told, "ChatResponse")


def test_times_are_zero_unless_told() -> None:
    told = whole(reply(Text(text="x")))
    assert told["total_duration"] == told["eval_duration"] == 0
    assert told["created_at"] == "1970-01-01T00:00:00Z"
    dated = ChatReply(dialect="x", id="", model="", choices=(), created_s=1751944939)
    assert whole(dated)["created_at"] == "2025-07-08T03:22:19Z"
    assert whole(dated)["model"] == "m"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "stop"),
        ("content_filter", "content_filter"),
        ("pause", "stop"),
        (None, "stop"),
    ],
)
def test_reasons(finish: Any, reason: str) -> None:
    told = reply(Text(text="x"), finish=finish)
    assert whole(told)["done_reason"] == reason
    assert stream(list(replayed(told)))[-1]["done_reason"] == reason


def test_extras_of_other_dialects_are_not_written() -> None:
    told = whole(reply(Text(text="x"), extra={"done_reason": "x", "model": "evil", "safety": []}))
    assert told["done_reason"] == "stop"
    assert "safety" not in told


def test_arguments_that_are_no_object_are_told_as_text() -> None:
    part = ToolCall(id="c", name="f", arguments='{"a": ')
    told = reply(Text(text="So: "), part, finish="tool_calls")
    message = whole(told)["message"]
    assert message["content"] == 'So: {"name": "f", "arguments": {"a": }'
    assert "tool_calls" not in message
    lines = stream(list(replayed(told)))
    assert "".join(one["message"]["content"] for one in lines) == message["content"]


def test_signatures_are_carried() -> None:
    signature = Signature("anthropic", "sig")
    call_signature = Signature("gemini", "c2ln")
    told = reply(
        Thinking(text="Hm.", signature=signature),
        Thinking(text="", signature=signature, redacted=True),
        ToolCall(id="c", name="f", arguments="{}", signature=call_signature),
    )
    message = whole(told)["message"]
    assert carried_id.unpack(message["tool_calls"][0]["id"]) == ("c", call_signature)
    details = message["reasoning_details"]
    assert details == [
        {
            "index": 0,
            "format": "anthropic-claude-v1",
            "type": "reasoning.text",
            "text": "Hm.",
            "signature": "sig",
        },
        {
            "index": 1,
            "format": "anthropic-claude-v1",
            "type": "reasoning.encrypted",
            "data": "sig",
        },
    ]
    lines = stream(list(replayed(told)))
    streamed = [one for line in lines for one in line["message"].get("reasoning_details", [])]
    assert streamed == details
    assert "".join(line["message"].get("thinking", "") for line in lines) == "Hm."
    body = json.dumps({"model": "m", "messages": [message]}).encode()
    assert CLIENT.read_call(body, "", {}).messages[0].parts == told.choices[0].parts


def test_a_stream() -> None:
    events: list[Event] = [
        ReplyStart(id="x", model="claude", created_s=1751944939),
        PartStart(choice=0, part=0, kind="thinking"),
        PartDelta(choice=0, part=0, text="Hm."),
        PartEnd(choice=0, part=0),
        PartStart(choice=0, part=1, kind="text"),
        PartDelta(choice=0, part=1, text="Grü\u2028ße", logprobs=[{"token": "x"}]),
        PartDelta(choice=0, part=1, text=""),
        PartEnd(choice=0, part=1),
        PartStart(choice=0, part=2, kind="tool_call", id="c1", name="f"),
        PartStart(choice=0, part=3, kind="tool_call", id="c2", name="g"),
        PartDelta(choice=0, part=2, text='{"a"'),
        PartDelta(choice=0, part=3, text="{}"),
        PartDelta(choice=0, part=2, text=":1}"),
        PartEnd(choice=0, part=3),
        PartEnd(choice=0, part=2),
        PartStart(choice=1, part=0, kind="text"),
        PartDelta(choice=1, part=0, text="another choice"),
        PartEnd(choice=1, part=0),
        CompletePart(choice=0, part=4, value=Media(kind="image", data="AAAA")),
        CompletePart(choice=0, part=5, value=Opaque("x", {})),
        ChoiceEnd(choice=0, reason="tool_calls"),
        ChoiceEnd(choice=1, reason="length"),
        ReplyUsage(usage=USAGE),
        ReplyEnd(),
    ]
    lines = stream(events, OllamaClient(NOW))
    for line in lines:
        assert_as_described(line, "ChatStreamEvent")
        assert (line["model"], line["created_at"]) == ("claude", NOW)
        assert line["message"]["role"] == "assistant"
    assert [line["done"] for line in lines] == [False] * 5 + [True]
    messages = [{**line["message"]} for line in lines]
    assert all(message.pop("role") == "assistant" for message in messages)
    assert messages == [
        {"content": "", "thinking": "Hm."},
        {"content": "Grü\u2028ße"},
        {
            "content": "",
            "tool_calls": [{"id": "c2", "function": {"index": 0, "name": "g", "arguments": {}}}],
        },
        {
            "content": "",
            "tool_calls": [
                {"id": "c1", "function": {"index": 1, "name": "f", "arguments": {"a": 1}}}
            ],
        },
        {"content": "", "images": ["AAAA"]},
        {"content": ""},
    ]
    assert lines[1]["logprobs"] == [{"token": "x"}]
    assert (lines[-1]["prompt_eval_count"], lines[-1]["eval_count"]) == (10, 7)
    assert lines[-1]["done_reason"] == "stop"
    assert lines[-1]["total_duration"] == 0


def test_a_streams_times_may_be_set_until_its_end() -> None:
    writer = OllamaClient(NOW).stream_writer(call())
    writer.write(ReplyStart(id="", model="m"))
    writer.durations = Durations(total_ns=4)
    assert json.loads(writer.write(ReplyEnd()))["total_duration"] == 4
    assert writer.write(ReplyEnd()) == b""
    assert writer.keep_alive() == b""


def test_what_is_held_of_one_part_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_writer, "MAX_EVENT_BYTES", 74)
    events: list[Event] = [ReplyStart(id="", model="m")]
    for number in range(3):
        events += [
            PartStart(choice=0, part=number, kind="tool_call", id="c", name="f"),
            PartDelta(choice=0, part=number, text='{"a":1}'),
            PartEnd(choice=0, part=number),
        ]
    assert len(stream([*events, ReplyEnd()])) == 4
    for kind in ("tool_call", "thinking"):
        over: list[Event] = [
            PartStart(choice=0, part=3, kind=kind, id="c", name="f"),
            *[PartDelta(choice=0, part=3, text="     ")] * 2,
        ]
        with pytest.raises(AnswerTooLongError, match="74 characters"):
            stream([*events, *over])


def test_a_failure_in_mid_stream_is_a_line() -> None:
    failure = Failure(kind="overloaded", message="too busy\u2028now")
    lines = stream([ReplyStart(id="", model="m"), ReplyFailure(failure), ReplyEnd()])
    assert lines == [{"error": "too busy\u2028now"}]
    assert CLIENT.stream_type() == "application/x-ndjson"
    assert json.loads(CLIENT.write_failure(failure, 503, "r")) == {"error": failure.message}


def test_refusals_are_text() -> None:
    assert whole(reply(Refusal("No.")))["message"]["content"] == "No."


@pytest.mark.parametrize("streamed", [True, False])
def test_the_same_dialect_loses_nothing(streamed: bool) -> None:
    told = {
        "model": "qwen3",
        "remote_model": "qwen3:480b",
        "remote_host": "https://ollama.com",
        "created_at": "2025-07-08T03:22:19Z",
        "message": {
            "role": "assistant",
            "content": "Hello",
            "thinking": "Hm.",
            "tool_calls": [
                {"id": "c", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}
            ],
        },
        "done": True,
        "done_reason": "length",
        "prompt_eval_count": 3,
        "eval_count": 4,
        "total_duration": 5,
        "load_duration": 6,
        "prompt_eval_duration": 7,
        "eval_duration": 8,
        "x_unknown": {"a": 1},
    }
    if not streamed:
        raw = json.dumps(told | {"logprobs": [{"token": "x"}]}).encode()
        again = CLIENT.write_reply(PROVIDER.read_reply(raw), call())
        assert json.loads(again) == json.loads(raw)
        return
    events = read_stream(OllamaStreamReader(), json.dumps(told).encode())
    lines = stream(events)
    written = "".join(json.dumps(line) + "\n" for line in lines).encode()
    again_events = read_stream(OllamaStreamReader(), written)
    assert collected("ollama", again_events) == collected("ollama", events)
    assert {name: lines[-1][name] for name in told if name != "message"} == {
        name: value for name, value in told.items() if name != "message"
    }
