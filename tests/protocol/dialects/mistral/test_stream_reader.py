"""Mistral's streams as they may come, however they are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.mistral import PROVIDER
from headrace.protocol.dialects.mistral.reply.stream_reader import MistralStreamReader
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import ChoiceEnd, Event, ReplyEnd, ReplyFailure, ReplyUsage
from headrace.protocol.neutral.part import Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.mistral.samples import DONE, call, chunk, reply, stream
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
COUNTED = ReplyUsage(usage=TokenUsage(input_tokens=3, output_tokens=4))


def read(*chunks: dict[str, Any], choices: int | None = None) -> list[Event]:
    asked = call(choices=choices)
    events = read_at_every_cut(lambda: PROVIDER.stream_reader(asked), stream(*chunks) + DONE)
    assert_grammar(events)
    return events


def think(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]} | fields


def test_a_stream_says_what_its_reply_says() -> None:
    reference = {"type": "reference", "reference_ids": [1]}
    calls = [
        {"id": "pcZFHqej8", "function": {"name": "f", "arguments": '{"a": 1}'}, "index": 0},
        {"id": "Ah0BFgzqX", "function": {"name": "g", "arguments": "{}"}, "index": 1},
    ]
    events = read(
        chunk({"role": "assistant", "content": ""}, p="abc"),
        chunk({"content": [think("Hm")]}),
        chunk({"content": [think("m…", signature="s1")]}),
        chunk({"content": [{"type": "text", "text": "Grü"}]}),
        chunk({"content": "ße 😀"}),
        chunk({"content": [reference]}),
        chunk({"content": "", "tool_calls": calls}, "tool_calls", usage=USAGE),
    )
    message = {
        "role": "assistant",
        "content": [
            think("Hmm…", signature="s1"),
            {"type": "text", "text": "Grüße 😀"},
            reference,
        ],
        "tool_calls": calls,
    }
    whole = PROVIDER.read_reply(reply(message, reason="tool_calls", usage=USAGE))
    assert collected("mistral", events) == whole
    assert whole.choices[0].parts == (
        Thinking(text="Hmm…", signature=Signature("mistral", "s1")),
        Text(text="Grüße 😀", citations=(Citation(start=0, end=7, document="1"),)),
        ToolCall(id="pcZFHqej8", name="f", arguments='{"a": 1}'),
        ToolCall(id="Ah0BFgzqX", name="g", arguments="{}"),
    )
    assert events[-2:] == [COUNTED, ReplyEnd()]


def test_a_signature_that_comes_last() -> None:
    events = read(
        chunk({"content": [think("a")]}),
        chunk({"content": [{"type": "thinking", "thinking": [], "signature": "s"}]}),
        chunk({"content": "b"}),
        chunk({"content": ""}, "stop"),
    )
    assert collected("mistral", events).choices[0].parts == (
        Thinking(text="a", signature=Signature("mistral", "s")),
        Text(text="b"),
    )


def test_calls_that_all_have_the_index_0_and_calls_in_pieces() -> None:
    def one(id: str, name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
        return {"id": id, "function": {"name": name, "arguments": arguments}} | fields

    whole = [one("aaaaaaaaa", "f", {"x": 1}, index=0), one("bbbbbbbbb", "f", "{}", index=0)]
    events = read(
        chunk({"tool_calls": whole}),
        chunk({"tool_calls": [one("ccccccccc", "g", '{"y"', index=1)]}),
        chunk({"tool_calls": [one("null", "", ": 2}", index=1)]}),
        chunk({}, "tool_calls"),
    )
    assert collected("mistral", events).choices[0].parts == (
        ToolCall(id="aaaaaaaaa", name="f", arguments='{"x":1}'),
        ToolCall(id="bbbbbbbbb", name="f", arguments="{}"),
        ToolCall(id="ccccccccc", name="g", arguments='{"y": 2}'),
    )


def test_several_choices_end_together() -> None:
    events = read(
        chunk({"content": "a"}, index=0),
        chunk({"content": ""}, "stop", index=0),
        chunk({"content": "b"}, index=1),
        chunk({"content": "c"}, "length", index=1, usage=USAGE),
        choices=2,
    )
    assert events[-4:] == [
        ChoiceEnd(choice=0, reason="stop"),
        ChoiceEnd(choice=1, reason="length"),
        COUNTED,
        ReplyEnd(),
    ]
    assert [one.parts for one in collected("mistral", events).choices] == [
        (Text(text="a"),),
        (Text(text="bc"),),
    ]


def test_usage_may_come_on_a_chunk_without_choices() -> None:
    last = {"id": "r1", "model": "m", "choices": [], "usage": USAGE}
    events = read(chunk({"content": "a"}), chunk({}, "stop"), last)
    assert events[-2:] == [COUNTED, ReplyEnd()]


def test_nothing_follows_the_end() -> None:
    reader = MistralStreamReader()
    body = stream(chunk({"content": "a"}, "stop")) + DONE
    assert read_stream(reader, body + body)[-1] == ReplyEnd()
    assert reader.feed(body) == [] and reader.end() == []


def test_comments_and_what_comes_after_a_finish_say_nothing() -> None:
    body = b": ping\r\n\r\n" + stream(
        chunk({"content": "a"}, "stop"), chunk({"content": "b"}), chunk({"content": "c"}, "stop")
    )
    events = read_at_every_cut(MistralStreamReader, body + DONE)
    assert_grammar(events)
    assert collected("mistral", events).choices[0].parts == (Text(text="a"),)


def test_an_answer_that_failed_is_counted_and_failed() -> None:
    events = read(chunk({"content": "a"}), chunk({"content": ""}, "error", usage=USAGE))
    assert events[-2] == COUNTED
    failed = events[-1]
    assert isinstance(failed, ReplyFailure) and failed.failure.kind == "server"
    assert not any(isinstance(one, ChoiceEnd) for one in events)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "network"),
        (stream(chunk({"content": "a"})), "network"),
        (stream(chunk({"content": "a"}, "stop")), "network"),
        (DONE, "damaged"),
        (stream(chunk({"content": "a"})) + DONE, "damaged"),
        (stream(chunk({"content": "a"})) + b"data: {\n\n", "damaged"),
        (stream(chunk({"content": "a"}, index=128)), "damaged"),
        (stream(chunk({"tool_calls": [{"id": "a", "function": {}}]})), "damaged"),
        (stream({"object": "error", "message": "oh", "type": "internal_server_error"}), "server"),
        (stream({"error": {"message": "maximum context length"}}), "context_length"),
    ],
    ids=range(10),
)
def test_streams_that_break(body: bytes, kind: str) -> None:
    events = read_at_every_cut(MistralStreamReader, body)
    assert_grammar(events)
    assert isinstance(events[-1], ReplyFailure)
    assert events[-1].failure.kind == kind


def test_a_stream_without_its_end_mark_is_counted_all_the_same() -> None:
    events = read_stream(
        MistralStreamReader(), stream(chunk({"content": "a"}, "stop", usage=USAGE))
    )
    assert events[-2] == COUNTED
    assert isinstance(events[-1], ReplyFailure)


def test_what_a_stream_may_make_us_hold_is_bounded() -> None:
    calls = [
        {"id": f"{number:09}", "function": {"name": "f", "arguments": ""}, "index": number}
        for number in range(2000)
    ]
    events = read_stream(MistralStreamReader(), stream(chunk({"tool_calls": calls})))
    assert isinstance(events[-1], ReplyFailure)


_VALUES = (
    st.none()
    | st.integers()
    | st.booleans()
    | st.text(max_size=3)
    | st.lists(st.integers(), max_size=2)
)
_CALLS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": _VALUES,
            "index": _VALUES | st.integers(0, 2),
            "function": _VALUES
            | st.fixed_dictionaries({}, optional={"name": _VALUES, "arguments": _VALUES}),
        },
    ),
    max_size=2,
)
_CONTENT = _VALUES | st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "thinking", "reference"]) | _VALUES},
        optional={"text": _VALUES, "thinking": _VALUES, "signature": _VALUES},
    ),
    max_size=3,
)
_CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "usage": _VALUES,
        "id": _VALUES,
        "choices": _VALUES
        | st.lists(
            st.fixed_dictionaries(
                {
                    "delta": _VALUES
                    | st.fixed_dictionaries(
                        {}, optional={"content": _CONTENT, "tool_calls": _VALUES | _CALLS}
                    )
                },
                optional={
                    "index": _VALUES | st.integers(0, 2),
                    "finish_reason": _VALUES | st.sampled_from(["stop", "error"]),
                },
            ),
            max_size=2,
        ),
    },
)


@settings(max_examples=80, deadline=None)
@given(chunks=st.lists(_CHUNKS, max_size=5))
def test_hostile_streams(chunks: list[dict[str, Any]]) -> None:
    lines = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks)
    assert_grammar(read_stream(MistralStreamReader(), lines.encode() + DONE))
