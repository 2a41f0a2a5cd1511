"""Cohere's streams as they may come, however they are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.cohere import PROVIDER
from headrace.protocol.dialects.cohere.reply.stream_reader import CohereStreamReader
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyUsage,
)
from headrace.protocol.neutral.part import Text, Thinking, ToolCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.cohere.samples import delta, message_end, reply, stream
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream

START = {"type": "message-start", "id": "r1", "delta": {"message": {"role": "assistant"}}}
USAGE = {"billed_units": {"input_tokens": 3, "output_tokens": 4}}


def read(*events: dict[str, Any]) -> list[Event]:
    found = read_at_every_cut(CohereStreamReader, stream(*events))
    assert_grammar(found)
    return found


def call_start(index: int, id: str, name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": ""}
    return delta("tool-call-start", index, tool_calls={"id": id, "function": function})


def call_delta(index: int, arguments: Any) -> dict[str, Any]:
    return delta("tool-call-delta", index, tool_calls={"function": {"arguments": arguments}})


def test_a_stream_says_what_its_reply_says() -> None:
    citation = {"start": 0, "end": 5, "text": "Grüße", "sources": []}
    logprob = {"text": "Grü", "token_ids": [1], "logprobs": [-0.5]}
    usage = USAGE | {"cached_tokens": 2}
    events = read(
        START,
        delta("content-start", 0, content={"type": "thinking", "thinking": ""}),
        delta("content-delta", 0, content={"thinking": "Hm"}),
        delta("content-delta", 0, content={"thinking": "…"}),
        {"type": "content-end", "index": 0},
        delta("content-start", 1, content={"type": "text", "text": ""}),
        delta("content-delta", 1, content={"text": "Grü"}) | {"logprobs": logprob},
        delta("content-delta", 1, content={"text": "ße 😀"}),
        delta("citation-start", 0, citations=citation),
        {"type": "citation-end", "index": 0},
        {"type": "content-end", "index": 1},
        {"type": "debug", "prompt": "..."},
        message_end(usage=usage),
    )
    content = [{"type": "thinking", "thinking": "Hm…"}, {"type": "text", "text": "Grüße 😀"}]
    message = {"role": "assistant", "content": content, "citations": [citation]}
    whole = reply(message=message, usage=usage, logprobs=[logprob])
    assert collected("cohere", events) == PROVIDER.read_reply(whole)
    assert events[-1] == ReplyEnd()


def test_a_plan_and_calls_side_by_side() -> None:
    events = read(
        START,
        delta("tool-plan-delta", tool_plan="I will "),
        delta("tool-plan-delta", tool_plan="look."),
        call_start(0, "a", "f"),
        call_start(1, "b", "g"),
        call_delta(1, '{"x":'),
        call_delta(0, "{}"),
        call_delta(1, " 1}"),
        {"type": "tool-call-end", "index": 0},
        {"type": "tool-call-end", "index": 1},
        message_end("TOOL_CALL", usage=USAGE),
    )
    answer = collected("cohere", events)
    assert answer.choices[0].parts == (
        Text(text="I will look."),
        ToolCall(id="a", name="f", arguments="{}"),
        ToolCall(id="b", name="g", arguments='{"x": 1}'),
    )
    assert answer.choices[0].finish == "tool_calls"
    assert answer.usage == TokenUsage(input_tokens=3, output_tokens=4)


def test_blocks_need_neither_start_nor_end() -> None:
    events = read(
        delta("content-delta", 0, content={"text": "a"}),
        delta("content-delta", 1, content={"text": "b"}),
        message_end(),
    )
    assert collected("cohere", events).choices[0].parts == (Text(text="a"), Text(text="b"))


def test_thoughts_and_text_of_one_event_are_two_parts() -> None:
    events = read(
        START, delta("content-delta", 0, content={"thinking": "a", "text": "b"}), message_end()
    )
    assert collected("cohere", events).choices[0].parts == (Thinking(text="a"), Text(text="b"))


def test_nothing_follows_the_end() -> None:
    reader = CohereStreamReader()
    body = stream(START, message_end()) + b"data: [DONE]\n\n"
    events = read_stream(reader, body)
    assert events[-1] == ReplyEnd()
    assert reader.feed(body) == [] and reader.end() == []
    assert sum(isinstance(one, ChoiceEnd) for one in events) == 1


@pytest.mark.parametrize(("reason", "kind"), [("ERROR", "server"), ("TIMEOUT", "timeout")])
def test_an_answer_that_failed_is_counted_and_failed(reason: str, kind: str) -> None:
    text = delta("content-delta", 0, content={"text": "a"})
    events = read(START, text, message_end(reason, usage=USAGE, error="gone wrong"))
    assert events[-2] == ReplyUsage(usage=TokenUsage(input_tokens=3, output_tokens=4))
    failed = events[-1]
    assert isinstance(failed, ReplyFailure)
    assert (failed.failure.kind, failed.failure.message) == (kind, "gone wrong")
    assert not any(isinstance(one, ChoiceEnd) for one in events)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "network"),
        (stream(START), "network"),
        (stream(START) + b"data: [DONE]\n\n", "network"),
        (stream(START) + b"data: {\n\n", "damaged"),
        (stream(START) + b"data: []\n\n", "damaged"),
        (stream(START, {"type": "message-end", "delta": {}}), "damaged"),
        (stream(START, call_delta(0, "{}")), "damaged"),
        (stream(START, call_start(0, "a", "")), "damaged"),
        (b'data: {"message": "too many tokens: size limit exceeded"}\n\n', "context_length"),
        (b'event: error\ndata: {"message": "internal error"}\n\n', "server"),
    ],
    ids=range(10),
)
def test_streams_that_break(body: bytes, kind: str) -> None:
    events = read_at_every_cut(CohereStreamReader, body)
    assert_grammar(events)
    assert isinstance(events[-1], ReplyFailure)
    assert events[-1].failure.kind == kind


def test_a_cut_in_the_middle_of_a_call_fails() -> None:
    events = read(START, call_start(0, "a", "f"), call_delta(0, '{"x"'))
    assert isinstance(events[-1], ReplyFailure)
    assert collected("cohere", events).choices[0].parts == (
        ToolCall(id="a", name="f", arguments='{"x"'),
    )


def test_what_a_stream_may_make_us_hold_is_bounded() -> None:
    calls = stream(START, *(call_start(index, "a", "f") for index in range(2000)))
    events = read_stream(CohereStreamReader(), calls)
    assert isinstance(events[-1], ReplyFailure)
    assert sum(isinstance(one, PartStart) for one in events) <= 1024
    citation = delta("citation-start", 0, citations={"text": "a" * 2**20})
    events = read_stream(CohereStreamReader(), stream(START, *[citation] * 20))
    assert isinstance(events[-1], ReplyFailure)


_VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
_MESSAGES = st.dictionaries(
    st.sampled_from(
        ["content", "tool_plan", "tool_calls", "citations", "text", "function", "name"]
    ),
    _VALUES | st.dictionaries(st.sampled_from(["text", "function", "id", "name"]), _VALUES),
    max_size=3,
)
_EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "message-start",
                "content-start",
                "content-delta",
                "content-end",
                "tool-plan-delta",
                "tool-call-start",
                "tool-call-delta",
                "citation-start",
                "message-end",
            ]
        )
        | _VALUES
    },
    optional={
        "index": _VALUES,
        "logprobs": _VALUES,
        "delta": _VALUES | st.fixed_dictionaries({"message": _VALUES | _MESSAGES}),
    },
)


@settings(max_examples=60, deadline=None)
@given(events=st.lists(_EVENTS, max_size=6))
def test_hostile_streams(events: list[dict[str, Any]]) -> None:
    lines = "".join(f"data: {json.dumps(one)}\n\n" for one in events)
    assert_grammar(read_stream(CohereStreamReader(), lines.encode()))
