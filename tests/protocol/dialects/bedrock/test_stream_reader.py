"""ConverseStream read, by hand-written streams: order, damage, exceptions, ends."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.aws.event_stream import write_frame
from headrace.protocol.dialects.bedrock.reply.stream_reader import ConverseStreamReader
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import collected
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
from headrace.protocol.neutral.part import Media, Opaque, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.bedrock.frames import (
    START,
    USAGE,
    delta,
    ended,
    event,
    exception,
    start,
    stop,
    stream,
)
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream

COUNTED = ReplyUsage(usage=TokenUsage(input_tokens=3, output_tokens=4))


def _read(raw: bytes) -> list[Event]:
    events = read_at_every_cut(ConverseStreamReader, raw)
    assert_grammar(events)
    return events


def _parts(raw: bytes) -> tuple[object, ...]:
    (choice,) = collected("bedrock", _read(raw)).choices
    return choice.parts


def _failure(raw: bytes) -> Failure:
    last = _read(raw)[-1]
    assert isinstance(last, ReplyFailure)
    return last.failure


def test_text_then_a_tool_call() -> None:
    raw = stream(
        START,
        delta(0, {"text": "größe "}),
        delta(0, {"text": "水😀"}),
        stop(0),
        start(1, {"toolUse": {"toolUseId": "t1", "name": "f"}}),
        delta(1, {"toolUse": {"input": ""}}),
        delta(1, {"toolUse": {"input": '{"a":'}}),
        delta(1, {"toolUse": {"input": " 1}"}}),
        stop(1),
        *ended("tool_use", serviceTier={"type": "flex"}),
    )
    assert _read(raw) == [
        ReplyStart(id="", model=""),
        PartStart(choice=0, part=0, kind="text"),
        PartDelta(choice=0, part=0, text="größe "),
        PartDelta(choice=0, part=0, text="水😀"),
        PartEnd(choice=0, part=0),
        PartStart(choice=0, part=1, kind="tool_call", id="t1", name="f"),
        PartDelta(choice=0, part=1, text='{"a":'),
        PartDelta(choice=0, part=1, text=" 1}"),
        PartEnd(choice=0, part=1),
        ChoiceEnd(choice=0, reason="tool_calls"),
        ReplyUsage(usage=COUNTED.usage, service_tier="flex"),
        ReplyEnd(),
    ]


def test_tool_calls_one_after_the_other_without_arguments() -> None:
    raw = stream(
        START,
        start(0, {"toolUse": {"toolUseId": "t1", "name": "f"}}),
        stop(0),
        start(1, {"toolUse": {"toolUseId": "t2", "name": "g"}}),
        stop(1),
        *ended("tool_use"),
    )
    assert _parts(raw) == (
        ToolCall(id="t1", name="f", arguments=""),
        ToolCall(id="t2", name="g", arguments=""),
    )


def test_signed_thoughts() -> None:
    raw = stream(
        START,
        delta(0, {"reasoningContent": {"text": "hm"}}),
        delta(0, {"reasoningContent": {"text": "m"}}),
        delta(0, {"reasoningContent": {"signature": "AB"}}),
        delta(0, {"reasoningContent": {"signature": "CD"}}),
        stop(0),
        delta(1, {"text": "yes"}),
        stop(1),
        *ended(),
    )
    signature = Signature("anthropic", "ABCD")
    assert _parts(raw) == (Thinking(text="hmm", signature=signature), Text(text="yes"))


def test_thoughts_that_are_signed_but_not_shown() -> None:
    raw = stream(
        START,
        delta(0, {"reasoningContent": {"text": ""}}),
        delta(0, {"reasoningContent": {"signature": "AB"}}),
        stop(0),
        *ended(),
    )
    assert _parts(raw) == (Thinking(text="", signature=Signature("anthropic", "AB")),)


def test_hidden_thoughts_in_two_pieces() -> None:
    pieces = [base64.b64encode(one).decode() for one in (b"EqQB", b"Cg==")]
    raw = stream(
        START,
        *(delta(0, {"reasoningContent": {"redactedContent": one}}) for one in pieces),
        stop(0),
        delta(1, {"text": "yes"}),
        stop(1),
        *ended(),
    )
    hidden = Thinking(text="", redacted=True, signature=Signature("anthropic", "EqQBCg=="))
    assert _parts(raw) == (hidden, Text(text="yes"))


def test_citations_are_of_the_text_that_they_stand_in() -> None:
    cited = {"title": "a", "location": {"documentPage": {"start": 1, "end": 2}}}
    raw = stream(
        START,
        delta(0, {"text": "so"}),
        delta(0, {"citation": cited}),
        delta(0, {"citation": {"title": "b"}}),
        stop(0),
        *ended(),
    )
    citations = [cited, {"title": "b"}]
    neutral = (Citation(title="a"), Citation(title="b"))
    extra = {"bedrock_citations": citations}
    assert _parts(raw) == (Text(text="so", citations=neutral, extra=extra),)


def test_a_picture() -> None:
    pieces = [base64.b64encode(one).decode() for one in (b"\x89PN", b"G")]
    raw = stream(
        START,
        start(0, {"image": {"format": "png"}}),
        *(delta(0, {"image": {"source": {"bytes": one}}}) for one in pieces),
        stop(0),
        *ended(),
    )
    data = base64.b64encode(b"\x89PNG").decode()
    assert _parts(raw) == (Media(kind="image", mime="image/png", data=data),)


def test_tools_of_the_provider_are_opaque() -> None:
    raw = stream(
        START,
        start(0, {"toolUse": {"toolUseId": "s", "name": "run", "type": "server_tool_use"}}),
        delta(0, {"toolUse": {"input": '{"x"'}}),
        delta(0, {"toolUse": {"input": ":1}"}}),
        stop(0),
        start(1, {"toolResult": {"toolUseId": "s", "status": "success"}}),
        delta(1, {"toolResult": [{"text": "a"}]}),
        delta(1, {"toolResult": [{"json": {"b": 2}}]}),
        stop(1),
        *ended(),
    )
    use = {"toolUseId": "s", "name": "run", "type": "server_tool_use", "input": {"x": 1}}
    result = {"toolUseId": "s", "status": "success", "content": [{"text": "a"}, {"json": {"b": 2}}]}
    assert _parts(raw) == (
        Opaque("bedrock", {"toolUse": use}),
        Opaque("bedrock", {"toolResult": result}),
    )


def test_unknown_events_and_deltas_are_skipped() -> None:
    raw = stream(
        START,
        ("somethingNew", {"a": 1}),
        delta(0, {"text": "a"}),
        delta(0, {"somethingNew": {"b": 1}}),
        stop(0),
        *ended(),
    )
    assert _parts(raw) == (Text(text="a"),)
    other = write_frame({":message-type": "other"}, b"?") + write_frame({}, b"?")
    assert _read(other + raw) == _read(raw)


def test_a_block_without_a_stop_ends_with_the_next() -> None:
    raw = stream(START, delta(0, {"text": "a"}), delta(1, {"text": "b"}), *ended())
    assert _parts(raw) == (Text(text="a"), Text(text="b"))


def test_content_before_the_message_starts_begins_it() -> None:
    raw = stream(delta(0, {"text": "a"}), START, stop(0), *ended())
    assert _parts(raw) == (Text(text="a"),)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("model_context_window_exceeded", "length"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons(reason: str, finish: str) -> None:
    (finished,) = [
        one for one in _read(stream(START, *ended(reason))) if isinstance(one, ChoiceEnd)
    ]
    assert finished.reason == finish
    plain = reason in ("end_turn", "max_tokens", "tool_use")
    assert finished.extra == ({} if plain else {"stopReason": reason})


def test_the_stop_sequence_and_the_trace_come_with_the_end() -> None:
    fields = {"additionalModelResponseFields": {"stop_sequence": "END"}}
    raw = stream(
        START,
        ("messageStop", {"stopReason": "stop_sequence", **fields}),
        ("metadata", {"usage": USAGE, "trace": {"guardrail": {}}}),
    )
    (finished,) = [one for one in _read(raw) if isinstance(one, ChoiceEnd)]
    assert finished.stop_sequence == "END"
    assert finished.extra == {
        **fields,
        "trace": {"guardrail": {}},
        "stopReason": "stop_sequence",
    }


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_what_the_model_failed_to_write_is_billed_and_a_failure(reason: str) -> None:
    raw = stream(START, delta(0, {"text": "a"}), stop(0), *ended(reason))
    events = _read(raw)
    assert events[-2] == COUNTED
    failure = _failure(raw)
    assert (failure.kind, failure.code) == ("server", reason)


def test_an_answer_without_metadata_has_ended_but_tells_no_usage() -> None:
    raw = stream(
        START, delta(0, {"text": "a"}), stop(0), ("messageStop", {"stopReason": "end_turn"})
    )
    assert _read(raw)[-2:] == [ChoiceEnd(choice=0, reason="stop"), ReplyEnd()]


def test_metadata_before_the_stop() -> None:
    last, first = ended()
    assert _read(stream(START, first, last))[-3:] == [
        ChoiceEnd(choice=0, reason="stop"),
        COUNTED,
        ReplyEnd(),
    ]


def test_content_after_the_stop_is_no_part_of_the_answer() -> None:
    last, first = ended()
    held = start(0, {"toolUse": {"name": "x", "type": "server_tool_use"}})
    late = (delta(0, {"text": "a"}), held, delta(0, {"toolUse": {"input": "{"}}), last)
    assert _read(stream(START, last, *late, first)) == _read(stream(START, last, first))
    assert _read(stream(START, last, *late)) == _read(stream(START, last))


def test_usage_that_is_none_is_not_told() -> None:
    for usage in (None, {}, {"inputTokens": "3"}, {"inputTokens": -1, "outputTokens": 2}):
        raw = stream(START, *ended(usage=usage))
        assert not any(isinstance(one, ReplyUsage) for one in _read(raw))


def test_a_stream_that_ends_early() -> None:
    whole = stream(START, delta(0, {"text": "a"}), stop(0))
    for raw in (b"", stream(START), whole, whole + event(*ended()[0])[:-3]):
        failure = _failure(raw)
        assert failure.kind == "network"


@pytest.mark.parametrize(
    ("name", "fields", "kind"),
    [
        ("throttlingException", {"message": "Too many requests"}, "rate_limit"),
        ("modelStreamErrorException", {"message": "m", "originalStatusCode": 500}, "server"),
        ("modelStreamErrorException", {"message": "m", "originalStatusCode": 529}, "overloaded"),
        ("modelStreamErrorException", {"message": "m", "originalStatusCode": []}, "server"),
        ("validationException", {"message": "Bad field"}, "bad_request"),
        (
            "validationException",
            {"message": "Input is too long for requested model."},
            "context_length",
        ),
        ("serviceUnavailableException", {"message": "m"}, "overloaded"),
        ("internalServerException", {"message": "m"}, "server"),
        ("modelTimeoutException", {"message": "m"}, "timeout"),
        ("somethingNewException", {"message": "m"}, "server"),
        ("", {}, "server"),
    ],
)
def test_exceptions_end_the_stream(name: str, fields: dict[str, object], kind: str) -> None:
    raw = exception(name, fields)
    failure = _failure(raw)
    assert failure.kind == kind
    assert failure.message
    middle = stream(START, delta(0, {"text": "a"})) + raw + stream(stop(0), *ended())
    assert _failure(middle) == failure


def test_an_error_frame_ends_the_stream() -> None:
    headers = {":message-type": "error", ":error-code": "InternalError", ":error-message": "oh"}
    failure = _failure(stream(START) + write_frame(headers, b""))
    assert (failure.kind, failure.code, failure.message) == ("server", "InternalError", "oh")


DAMAGED = [
    event("messageStart", b"{"),
    event("messageStart", b"[]"),
    event("messageStart", b"\xff"),
    event("messageStart", b"[" * 100_000),
    event("contentBlockDelta", {"contentBlockIndex": 0, "delta": 5}),
    event(*delta(0, {"text": 5})),
    event(*delta(0, {"toolUse": {"input": "{}"}})),
    event(*delta(0, {"toolUse": {"input": {}}})),
    event(*delta(0, {"reasoningContent": {"redactedContent": "?"}})),
    event(*start(0, {"toolUse": {"toolUseId": "t"}})),
    event(*start(0, {"toolUse": {"toolUseId": 1, "name": "f"}})),
    event("messageStop", {}),
    event("messageStop", {"stopReason": None}),
    stream(
        start(0, {"toolUse": {"name": "x", "type": "server_tool_use"}}),
        delta(0, {"toolUse": {"input": "{"}}),
        stop(0),
    ),
    stream(
        start(0, {"image": {"format": "png"}}),
        delta(0, {"image": {"source": {"bytes": 5}}}),
        stop(0),
    ),
    b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_damage_is_a_failure(damaged: bytes) -> None:
    raw = stream(START, delta(7, {"text": "a"})) + damaged + stream(*ended())
    events = read_stream(ConverseStreamReader(), raw)
    assert_grammar(events)
    last = events[-1]
    assert isinstance(last, ReplyFailure)
    assert last.failure.kind == "damaged"


def test_what_is_held_is_bounded() -> None:
    picture = base64.b64encode(bytes(600)).decode()
    raw = stream(
        START,
        start(0, {"image": {"format": "png"}}),
        *(delta(0, {"image": {"source": {"bytes": picture}}}) for _ in range(3)),
        stop(0),
        *ended(),
    )
    events = read_stream(ConverseStreamReader(max_held_bytes=2000), raw)
    assert isinstance(events[-1], ReplyFailure)
    assert not any(isinstance(one, CompletePart) for one in events)
    assert isinstance(read_stream(ConverseStreamReader(max_held_bytes=9000), raw)[-1], ReplyEnd)


def test_nothing_comes_after_the_end() -> None:
    raw = stream(START, *ended())
    reader = ConverseStreamReader()
    assert reader.feed(raw)[-1] == ReplyEnd()
    assert reader.feed(raw) == []
    assert reader.end() == []
    failing = ConverseStreamReader()
    assert isinstance(failing.feed(b"x" * 12)[-1], ReplyFailure)
    assert failing.feed(raw) == []
    assert failing.end() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["text", "toolUse", "toolResult", "reasoningContent", "citation", "image", "input", "signature"]
)
EVENTS = st.tuples(
    st.sampled_from(
        [
            "messageStart",
            "contentBlockStart",
            "contentBlockDelta",
            "contentBlockStop",
            "messageStop",
            "metadata",
        ]
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "contentBlockIndex": st.integers(0, 2) | JSON,
            "delta": JSON | st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON), max_size=2),
            "start": JSON | st.dictionaries(KEYS, JSON, max_size=2),
            "stopReason": st.just("end_turn") | JSON,
            "usage": JSON,
        },
    )
    | JSON,
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=8))
def test_any_events_keep_the_grammar(events: list[tuple[str, object]]) -> None:
    pieces = [event(name, fields) for name, fields in events]
    read = read_stream(ConverseStreamReader(), *pieces)
    assert_grammar(read)
    assert read == read_stream(ConverseStreamReader(), b"".join(pieces))
    collected("bedrock", read)
