"""Streams by hand: cuts, damage, ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.dialects.anthropic.reply import stream_reader
from headrace.protocol.dialects.anthropic.reply.stream_reader import AnthropicStreamReader
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import (
    Event,
    PartDelta,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.part import Opaque, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream

USAGE = {"input_tokens": 5, "output_tokens": 1}


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind} | fields, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def start(usage: dict[str, Any] | None = None, **fields: Any) -> bytes:
    message = {"id": "m", "model": "x", "content": [], "usage": usage or USAGE} | fields
    return event("message_start", message=message)


def block(index: int, first: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    return b"".join(
        (
            event("content_block_start", index=index, content_block=first),
            *(event("content_block_delta", index=index, delta=one) for one in deltas),
            event("content_block_stop", index=index),
        )
    )


def stop(reason: str | None = "end_turn", usage: dict[str, Any] | None = None, **f: Any) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None} | f
    return event("message_delta", delta=delta, usage=usage or {"output_tokens": 9}) + event(
        "message_stop"
    )


def read(*pieces: bytes) -> list[Event]:
    events = read_stream(AnthropicStreamReader(), *pieces)
    assert_grammar(events)
    return events


def choice(*pieces: bytes) -> Choice:
    return collected("anthropic", read(*pieces)).choices[0]


WHOLE = b"".join(
    (
        start(),
        event("ping"),
        b": comment\n\n",
        block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm 🤔"},
            {"type": "signature_delta", "signature": "S"},
        ),
        block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Grüße\u2028"}),
        event("something_new", value=1),
        block(
            2,
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"ä":'},
            {"type": "input_json_delta", "partial_json": " 1}"},
        ),
        stop("tool_use"),
    )
)


def test_every_cut_gives_the_same_events() -> None:
    for stream in (WHOLE, WHOLE.replace(b"\n", b"\r\n")):
        events = read_at_every_cut(AnthropicStreamReader, stream)
        assert_grammar(events)
        reply = collected("anthropic", events)
        assert reply.choices == (
            Choice(
                parts=(
                    Thinking(text="hm 🤔", signature=Signature("anthropic", "S")),
                    Text(text="Grüße\u2028"),
                    ToolCall(id="t", name="f", arguments='{"ä": 1}'),
                ),
                finish="tool_calls",
            ),
        )
        assert reply.usage == TokenUsage(input_tokens=5, output_tokens=9)


HELLO = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"})


def test_a_repeated_start_is_the_same_answer() -> None:
    """Some servers write message_start twice."""
    once = read(start() + HELLO + stop())
    assert read(start() + start() + HELLO + stop()) == once
    later = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "!"})
    assert read(start() + HELLO + start() + later + stop()) == read(
        start() + HELLO + later + stop()
    )
    unnamed = start(id=None)
    assert collected("anthropic", read(unnamed + unnamed + HELLO + stop())).choices[0].parts == (
        Text(text="Hello"),
    )


@pytest.mark.parametrize(
    "stream",
    [
        start() + HELLO + start(id="other") + HELLO + stop(),
        start() + start(id="other") + HELLO + stop(),
        start() + HELLO + start() + HELLO + stop(),
    ],
)
def test_two_answers_in_one_stream_are_damage(stream: bytes) -> None:
    last = read_at_every_cut(AnthropicStreamReader, stream)[-1]
    assert isinstance(last, ReplyFailure)
    assert last.failure.kind == "damaged"


def test_the_start_tells_the_input() -> None:
    began = read(WHOLE)[0]
    assert began == ReplyStart(id="m", model="x", usage=TokenUsage(input_tokens=5, output_tokens=1))


def test_the_last_usage_counts_and_keeps_how_writes_were_split() -> None:
    split = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 30}
    first = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 30,
        "cache_creation": split,
        "output_tokens": 1,
        "service_tier": "standard",
    }
    last = {
        "input_tokens": 7,
        "cache_creation_input_tokens": 40,
        "cache_read_input_tokens": 2,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
        "server_tool_use": {"web_search_requests": 1},
    }
    events = read(start(first), stop(usage=last))
    counted = [one for one in events if isinstance(one, ReplyUsage)]
    assert counted == [
        ReplyUsage(
            usage=TokenUsage(
                input_tokens=7,
                cache_read_tokens=2,
                cache_write_1h_tokens=40,
                output_tokens=5,
                reasoning_tokens=4,
                is_incomplete=True,  # the search
            ),
            service_tier="standard",
        )
    ]
    extra = collected("anthropic", events).choices[0].extra
    assert extra == {"anthropic": {"usage": {"server_tool_use": {"web_search_requests": 1}}}}


def test_fields_of_the_message_are_kept() -> None:
    ended = event(
        "message_delta",
        delta={"stop_reason": "refusal", "stop_details": {"category": "c"}, "container": None},
        usage={"output_tokens": 1},
        context_management={"applied_edits": []},
    )
    found = choice(start(container={"id": "c"}), ended, event("message_stop"))
    assert found.finish == "content_filter"
    assert found.extra == {
        "anthropic": {
            "container": {"id": "c"},
            "stop_details": {"category": "c"},
            "context_management": {"applied_edits": []},
        }
    }


def test_citations() -> None:
    cited = [{"type": "char_location", "cited_text": "a"}, {"type": "char_location"}]
    found = choice(
        start(),
        block(
            0,
            {"type": "text", "text": "", "citations": []},
            {"type": "citations_delta", "citation": cited[0]},
            {"type": "text_delta", "text": "a"},
            {"type": "citations_delta", "citation": cited[1]},
        ),
        stop(),
    )
    neutral = (Citation(quoted="a"), Citation())
    assert found.parts == (Text(text="a", citations=neutral, extra={"citations": cited}),)


def test_blocks_that_are_held_until_they_are_whole() -> None:
    found = choice(
        start(),
        block(
            0,
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query"'},
            {"type": "input_json_delta", "partial_json": ': "q"}'},
        ),
        block(1, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
        block(
            2,
            {"type": "compaction", "content": None},
            {"type": "compaction_delta", "content": "so "},
            {"type": "compaction_delta", "content": "far"},
        ),
        block(3, {"type": "redacted_thinking", "data": "D"}),
        block(
            4,
            {"type": "mcp_tool_use", "id": "s", "name": "m", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query"'},
        ),
        stop("pause_turn"),
    )
    assert found.finish == "pause"
    assert found.parts == (
        Opaque(
            "anthropic",
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        ),
        Opaque("anthropic", {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
        Opaque("anthropic", {"type": "compaction", "content": "so far"}),
        Thinking(text="", signature=Signature("anthropic", "D"), redacted=True),
        Opaque(
            "anthropic",
            {
                "type": "mcp_tool_use",
                "id": "s",
                "name": "m",
                "input": {"INVALID_JSON": '{"query"'},
            },
        ),
    )


def test_calls_that_are_told_at_the_start_or_not_at_all() -> None:
    found = choice(
        start(),
        block(0, {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}),
        block(1, {"type": "tool_use", "id": "b", "name": "f", "input": {}}),
        block(2, {"type": "tool_use", "id": "c", "name": "f", "caller": {"type": "direct"}}),
        block(3, {"type": "text", "text": "all at once"}),
        stop("tool_use"),
    )
    assert found.parts == (
        ToolCall(id="a", name="f", arguments='{"x":1}'),
        ToolCall(id="b", name="f", arguments="{}"),
        ToolCall(id="c", name="f", arguments="{}", extra={"caller": {"type": "direct"}}),
        Text(text="all at once"),
    )


def test_a_block_without_its_stop_ends_with_the_next() -> None:
    def begun(index: int) -> bytes:
        return event(
            "content_block_start", index=index, content_block={"type": "text", "text": "a"}
        )

    assert choice(start(), begun(0), begun(1), stop()).parts == (Text(text="a"), Text(text="a"))


def test_an_error_in_the_midst() -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    events = read(start(), block(0, {"type": "text", "text": "a"}), event("error", error=error))
    assert isinstance(events[-1], ReplyFailure)
    failure = events[-1].failure
    assert (failure.kind, failure.message, failure.code) == (
        "overloaded",
        "Overloaded",
        "overloaded_error",
    )


def test_a_cut_stream_failed() -> None:
    for cut in (b"", WHOLE[:40], start(), start() + block(0, {"type": "text", "text": "a"})):
        last = read(cut)[-1]
        assert isinstance(last, ReplyFailure)
        assert last.failure.kind == "network"


def test_what_was_counted_is_told_even_if_the_end_is_missing() -> None:
    ended = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9})
    *_, counted, failed = read(start(), ended)
    assert counted == ReplyUsage(usage=TokenUsage(input_tokens=5, output_tokens=9))
    assert isinstance(failed, ReplyFailure)


def test_nothing_comes_after_the_end() -> None:
    reader = AnthropicStreamReader()
    assert isinstance(reader.feed(WHOLE)[-1], ReplyEnd)
    assert reader.feed(WHOLE) == []
    assert reader.end() == []


@pytest.mark.parametrize(
    "stream",
    [
        b"data: {\n\n",
        b"data: [1]\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        block(0, {"type": "text", "text": "a"}),
        event("message_stop"),
        start() + start(id="n"),
        start() + event("content_block_start", index=0),
        start() + event("content_block_start", index=0, content_block={"type": 1}),
        start() + block(0, {"type": "tool_use", "id": "a", "name": ""}),
        start() + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"}),
        start() + block(0, {"type": "text"}, {"type": "input_json_delta", "partial_json": "{"}),
        start() + block(0, {"type": "text"}, {"type": "signature_delta", "signature": "{"}),
    ],
    ids=[
        "cut json",
        "list",
        "deep",
        "content first",
        "end first",
        "two starts",
        "no block",
        "no type",
        "no name",
        "no open block",
        "wrong delta",
        "wrong signature",
    ],
)
def test_damage_is_an_event(stream: bytes) -> None:
    events = read_at_every_cut(AnthropicStreamReader, stream[:4000])
    assert_grammar(events)
    events = read(stream)
    assert isinstance(events[-1], ReplyFailure)
    assert events[-1].failure.kind == "damaged"


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "MAX_HELD_CHARACTERS", 1000)
    long = {"type": "compaction_delta", "content": "a" * 100}
    events = read(start(), block(0, {"type": "compaction"}, *[long] * 20), stop())
    assert isinstance(events[-1], ReplyFailure)
    text = {"type": "text_delta", "text": "a" * 100}
    assert isinstance(read(start(), block(0, {"type": "text"}, *[text] * 20), stop())[-1], ReplyEnd)
    events = read(start(), *[event("message_delta", delta={"a": "b" * 50})] * 20)
    assert isinstance(events[-1], ReplyFailure)


def test_odd_values_are_passed_over() -> None:
    found = read(
        start(id=3, model=None, usage="many"),
        block(0, {"type": "text", "text": 5}, {"type": "text_delta", "text": None}),
        block(1, {"type": "text"}, {"type": "new_delta"}, {"text": "a"}),
        event("content_block_stop", index=9),
        event("message_delta", delta=[], usage={"output_tokens": "x"}),
        b"data: [DONE]\n\n",
        event("message_stop"),
    )
    assert isinstance(found[-1], ReplyEnd)
    assert not any(isinstance(one, ReplyUsage | PartDelta) for one in found)


_VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
_DELTAS = st.dictionaries(st.sampled_from(("text", "thinking", "partial_json", "index")), _VALUES)
_KINDS = st.sampled_from(
    (
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    )
)
_TYPES = st.sampled_from(("text", "tool_use", "thinking", "odd", "text_delta", "input_json_delta"))


@pytest.mark.long
@given(st.lists(st.tuples(_KINDS, _TYPES, _DELTAS, _VALUES), max_size=12))
def test_no_stream_breaks_the_grammar(
    told: list[tuple[str, str, dict[str, Any], Any]],
) -> None:
    pieces = [start()]
    for kind, of, fields, value in told:
        inner = fields | {"type": of, "id": "a", "name": "f"}
        pieces.append(
            event(
                kind,
                index=0,
                content_block=inner,
                delta=inner,
                usage=value if kind == "message_delta" else fields,
                message=value,
            )
        )
    read(*pieces)
