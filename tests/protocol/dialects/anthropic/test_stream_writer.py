"""Answers of other dialects as streams of this one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.dialects.anthropic import CLIENT
from headrace.protocol.dialects.anthropic.reply import stream_writer
from headrace.protocol.neutral.call import ChatCall
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
from headrace.protocol.neutral.part import Media, Opaque, Signature, Thinking
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.anthropic.recorded import assembled, stream_events
from tests.protocol.dialects.anthropic.test_write_reply import back

CALL = ChatCall(dialect="anthropic", model="m", messages=(), stream=True)
BEGAN = ReplyStart(id="chatcmpl-1", model="gpt")
USAGE = ReplyUsage(usage=TokenUsage(input_tokens=3, output_tokens=4))


def write(*events: Event) -> bytes:
    writer = CLIENT.stream_writer(CALL)
    return b"".join(writer.write(event) for event in events)


def message(*events: Event) -> dict[str, Any]:
    return assembled(write(BEGAN, *events, ReplyEnd()))


def began(part: int, kind: Any, id: str = "", name: str = "") -> PartStart:
    return PartStart(choice=0, part=part, kind=kind, id=id, name=name)


def grew(part: int, text: str, **fields: Any) -> PartDelta:
    return PartDelta(choice=0, part=part, text=text, **fields)


def ended(part: int, signature: Signature | None = None) -> PartEnd:
    return PartEnd(choice=0, part=part, signature=signature)


def test_the_events_of_a_text() -> None:
    stream = write(
        BEGAN,
        began(0, "text"),
        grew(0, "Grü\u2028"),
        grew(0, ""),
        grew(0, "ße"),
        ended(0),
        ChoiceEnd(choice=0, reason="stop"),
        USAGE,
        ReplyEnd(),
    )
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"thinking_tokens": 0},
    }
    assert stream_events(stream) == [
        {
            "type": "message_start",
            "message": {
                "id": "chatcmpl-1",
                "type": "message",
                "role": "assistant",
                "model": "gpt",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage | {"input_tokens": 0, "output_tokens": 0},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Grü\u2028"},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "ße"},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    for line in stream.split(b"\n\n"):
        if line:
            name, data = line.split(b"\n")
            assert name == b"event: " + json.loads(data[5:])["type"].encode()
    assert "\u2028".encode() not in stream


def test_what_is_known_of_the_input_is_told_first() -> None:
    stream = write(ReplyStart(id="m", model="x", usage=TokenUsage(input_tokens=7)))
    assert stream_events(stream)[0]["message"]["usage"]["input_tokens"] == 7


def test_calls_that_grow_side_by_side_follow_one_another() -> None:
    events = [
        BEGAN,
        began(0, "tool_call", "a", "f"),
        grew(0, '{"x"'),
        began(1, "tool_call", "b", "g"),
        grew(1, '{"y"'),
        grew(0, ": 1}"),
        began(2, "tool_call", "c", "h"),
        grew(1, ": 2}"),
        ended(2),
        ended(0),
        ended(1),
        ChoiceEnd(choice=0, reason="tool_calls"),
        ReplyEnd(),
    ]
    stream = write(*events)
    open_index = None
    for event in stream_events(stream):
        if event["type"] == "content_block_start":
            assert open_index is None
            open_index = event["index"]
        elif event["type"] == "content_block_stop":
            assert open_index == event["index"]
            open_index = None
    found = assembled(stream)
    assert [(one["id"], one["input"]) for one in found["content"]] == [
        ("a", {"x": 1}),
        ("b", {"y": 2}),
        ("c", {}),
    ]
    assert found["stop_reason"] == "tool_use"


def test_arguments_are_told_as_they_come() -> None:
    """All but the first piece, which waits for the second."""
    writer = CLIENT.stream_writer(CALL)
    writer.write(BEGAN)
    assert writer.write(began(0, "tool_call", "a", "f")) == b""
    assert writer.write(grew(0, "")) == b""
    assert writer.write(grew(0, '{"x"')) == b""
    assert writer.write(grew(0, ": ")).count(b"content_block_delta") == 4
    assert b'"partial_json":"1}"' in writer.write(grew(0, "1}"))


def test_signatures_survive_the_client() -> None:
    gemini, openai = Signature("gemini", "G"), Signature("openai", "E")
    body = message(
        began(0, "thinking"),
        grew(0, "hm"),
        ended(0, gemini),
        CompletePart(choice=0, part=1, value=Thinking(text="", signature=openai, redacted=True)),
        CompletePart(
            choice=0,
            part=2,
            value=Thinking(text="so", signature=openai, summary=True, id="rs_1"),
        ),
        began(3, "tool_call", "call_1", "f"),
        grew(3, '{"a":1}'),
        ended(3, gemini),
        ChoiceEnd(choice=0, reason="tool_calls"),
    )
    body["content"] += message(
        PartStart(choice=0, part=0, kind="thinking", id="rs_2", summary=True),
        grew(0, "on"),
        ended(0, openai),
    )["content"]
    thought, hidden, summary, call, told = back(body)
    assert told == Thinking(text="on", signature=openai, summary=True, id="rs_2")
    assert thought == Thinking(text="hm", signature=gemini)
    assert hidden == Thinking(text="", signature=openai, redacted=True)
    assert summary == Thinking(text="so", signature=openai, summary=True, id="rs_1")
    assert getattr(call, "signature", None) == gemini
    assert getattr(call, "id", None) == "call_1"


def test_what_has_no_block_leaves_no_gap() -> None:
    body = message(
        CompletePart(choice=0, part=0, value=Opaque("gemini", {"x": 1})),
        CompletePart(choice=0, part=1, value=Media(kind="audio", data="AA==")),
        PartStart(choice=1, part=0, kind="text"),
        PartDelta(choice=1, part=0, text="another answer"),
        PartEnd(choice=1, part=0),
        began(2, "refusal"),
        grew(2, "no"),
        ended(2),
        ChoiceEnd(choice=1, reason="length"),
        ChoiceEnd(choice=0, reason="content_filter"),
    )
    assert body["content"] == [{"type": "text", "text": "no"}]
    assert body["stop_reason"] == "refusal"


def test_only_citations_of_this_dialect_are_told() -> None:
    cited = {"type": "char_location", "cited_text": "a"}
    body = message(
        began(0, "text"),
        grew(0, "a"),
        grew(0, "", extra={"citations": [cited, {"start": 1}], "annotations": [1]}),
        ended(0),
    )
    assert body["content"] == [{"type": "text", "text": "a", "citations": [cited]}]


def test_agents_are_told_of_tools_whatever_the_provider_says() -> None:
    body = message(began(0, "tool_call", "a", "f"), ended(0), ChoiceEnd(choice=0, reason="stop"))
    assert body["stop_reason"] == "tool_use"
    assert body["content"] == [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]


def test_a_stop_sequence() -> None:
    body = message(ChoiceEnd(choice=0, reason="stop", stop_sequence="END"))
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "END")


@pytest.mark.parametrize("before", [(), (BEGAN,), (BEGAN, began(0, "text"), grew(0, "a"))])
def test_a_failure_is_the_last_event(before: tuple[Event, ...]) -> None:
    writer = CLIENT.stream_writer(CALL)
    for event in before:
        writer.write(event)
    failure = Failure(kind="overloaded", message="busy")
    written = writer.write(ReplyFailure(failure))
    assert written.startswith(b"event: error\n")
    assert stream_events(written) == [
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    ]
    assert writer.write(ReplyEnd()) == b""
    assert writer.write(grew(0, "a")) == b""
    assert writer.keep_alive() == b""


def test_a_ping_keeps_it_alive() -> None:
    assert stream_events(CLIENT.stream_writer(CALL).keep_alive()) == [{"type": "ping"}]


def test_calls_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_writer, "MAX_WAITING_CHARACTERS", 2164)
    writer = CLIENT.stream_writer(CALL)
    for event in (BEGAN, began(0, "tool_call", "a", "f"), began(1, "tool_call", "b", "f")):
        writer.write(event)
    assert writer.write(grew(1, "a" * 100)) == b""
    with pytest.raises(AnswerTooLongError, match="2164 characters") as raised:
        writer.write(grew(1, "a"))
    told = Failure(kind="damaged", message=str(raised.value))
    assert b"event: error" in writer.write(ReplyFailure(told))
    assert writer.write(ended(0)) == b""
    calls = [began(part, "tool_call", "a", "f") for part in range(3)]
    with pytest.raises(AnswerTooLongError):
        write(BEGAN, *calls)
    ends = [one for part, call in enumerate(calls) for one in (call, ended(part))]
    assert b"event: error" not in write(BEGAN, *ends)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("grow", "end"))), max_size=30))
def test_any_order_of_calls_gives_all_of_them(steps: list[tuple[int, str]]) -> None:
    events: list[Event] = []
    expected: dict[int, str] = {}
    over: set[int] = set()
    for part, step in steps:
        for new in range(len(expected), part + 1):
            events.append(began(new, "tool_call", f"id{new}", "f"))
            expected[new] = ""
        if part in over:
            continue
        if step == "end":
            events.append(ended(part))
            over.add(part)
        else:
            events.append(grew(part, "1"))
            expected[part] += "1"
    events += [ended(part) for part in expected if part not in over]
    pieces: dict[str, str] = {}
    ids: dict[int, str] = {}
    for event in stream_events(write(BEGAN, *events, ReplyEnd())):
        if event["type"] == "content_block_start":
            ids[event["index"]] = event["content_block"]["id"]
            pieces[ids[event["index"]]] = ""
        elif event["type"] == "content_block_delta":
            pieces[ids[event["index"]]] += event["delta"]["partial_json"]
    assert list(ids) == list(range(len(expected)))
    assert pieces == {f"id{part}": text for part, text in expected.items()}
