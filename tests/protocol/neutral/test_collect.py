"""A stream and its reply say the same."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.neutral.collect import Collector, collected, replayed
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.reply import ChatReply, Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.neutral.streams import assert_grammar

_WORDS = st.text(max_size=12)
_NAMES = st.text(min_size=1, max_size=8)
_EXTRA = st.dictionaries(_NAMES, st.integers() | st.lists(_WORDS, max_size=2), max_size=2)
_SIGNATURE = st.none() | st.builds(Signature, st.sampled_from(("anthropic", "gemini")), _NAMES)
_MARK = st.sampled_from((None, None, CacheMark(), CacheMark("1h")))
_TEXTS = st.builds(Text, text=_WORDS, signature=_SIGNATURE, cache=_MARK, extra=_EXTRA)
_PARTS: st.SearchStrategy[Part] = st.one_of(
    _TEXTS,
    st.builds(Refusal, _WORDS),
    st.builds(
        Thinking,
        text=_WORDS,
        signature=_SIGNATURE,
        redacted=st.booleans(),
        summary=st.booleans(),
        id=st.none() | _NAMES,
    ),
    st.builds(
        ToolCall,
        id=_NAMES,
        name=_NAMES,
        arguments=_WORDS,
        signature=_SIGNATURE,
        cache=_MARK,
        extra=_EXTRA,
    ),
    st.builds(Media, kind=st.just("image"), data=_NAMES, mime=st.just("image/png")),
    st.builds(Opaque, st.just("anthropic"), _EXTRA),
)


@st.composite
def _choices(draw: st.DrawFn) -> tuple[Choice, ...]:
    # Numbered in order; a choice that neither says anything nor ends leaves no trace in a stream,
    # and what is told with the end or with text is there only with them.
    choices = []
    for index in sorted(draw(st.sets(st.integers(0, 5), max_size=3))):
        parts = tuple(draw(st.lists(_PARTS, max_size=4)))
        finish = draw(st.sampled_from(("stop", "length", "tool_calls", "pause")))
        finish = draw(st.sampled_from((finish, None))) if parts else finish
        streamed_text = any(isinstance(one, Text) and one.cache is None for one in parts)
        choices.append(
            Choice(
                index=index,
                parts=parts,
                finish=finish,
                stop_sequence=draw(st.none() | _WORDS) if finish else None,
                logprobs=draw(st.none() | st.just([{"token": "a"}])) if streamed_text else None,
                extra=draw(_EXTRA) if finish else {},
            )
        )
    return tuple(choices)


@st.composite
def _replies(draw: st.DrawFn) -> ChatReply:
    usage = draw(
        st.none()
        | st.builds(TokenUsage, input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 9))
    )
    return ChatReply(
        dialect="anthropic",
        id=draw(_WORDS),
        model=draw(_WORDS),
        choices=draw(_choices()),
        usage=usage,
        created_s=draw(st.none() | st.integers(0, 2**40)),
        service_tier=draw(st.none() | _WORDS) if usage else None,
        extra=draw(_EXTRA),
    )


@pytest.mark.long
@settings(max_examples=100)
@given(_replies())
def test_replayed_and_collected_is_the_reply(reply: ChatReply) -> None:
    events = list(replayed(reply))
    assert_grammar(events)
    assert collected(reply.dialect, events) == reply


def test_pieces_are_joined_and_extras_merged() -> None:
    events = [
        ReplyStart(id="m", model="x"),
        PartStart(choice=0, part=0, kind="text"),
        PartDelta(choice=0, part=0, text="a", logprobs=[{"token": "a"}], extra={"one": 1}),
        PartDelta(choice=0, part=0, text="b", logprobs=[{"token": "b"}], extra={"two": 2}),
        PartEnd(choice=0, part=0),
        PartStart(choice=0, part=1, kind="tool_call", id="c", name="f", extra={"caller": 1}),
        PartDelta(choice=0, part=1, text='{"a"'),
        PartDelta(choice=0, part=1, text=":1}"),
        PartEnd(choice=0, part=1, signature=Signature("gemini", "s")),
    ]
    choice = collected("anthropic", events).choices[0]
    assert choice.parts == (
        Text(text="ab", extra={"one": 1, "two": 2}),
        ToolCall(
            id="c",
            name="f",
            arguments='{"a":1}',
            signature=Signature("gemini", "s"),
            extra={"caller": 1},
        ),
    )
    assert choice.logprobs == [{"token": "a"}, {"token": "b"}]
    assert choice.finish is None


def test_tool_calls_may_grow_side_by_side() -> None:
    events = [
        PartStart(choice=0, part=0, kind="tool_call", id="a", name="f"),
        PartStart(choice=0, part=1, kind="tool_call", id="b", name="g"),
        PartDelta(choice=0, part=1, text="{}"),
        PartDelta(choice=0, part=0, text="[]"),
        PartEnd(choice=0, part=1),
        PartEnd(choice=0, part=0),
    ]
    assert [one.arguments for one in collected("x", events).choices[0].parts] == ["[]", "{}"]


def test_a_cut_stream_is_there_as_far_as_it_came() -> None:
    collector = Collector("anthropic")
    for event in (
        ReplyStart(id="m", model="x", usage=TokenUsage(input_tokens=3)),
        PartStart(choice=0, part=0, kind="thinking"),
        PartDelta(choice=0, part=0, text="hm"),
    ):
        collector.take(event)
    assert not collector.ended
    assert collector.reply().choices == (Choice(parts=(Thinking(text="hm"),)),)
    assert collector.usage == TokenUsage(input_tokens=3)
    failure = Failure(kind="network", message="cut")
    collector.take(ReplyFailure(failure))
    assert collector.failure == failure
    assert not collector.ended


def test_the_last_usage_counts_and_each_choice_ends_for_itself() -> None:
    events = [
        ReplyStart(id="m", model="x", usage=TokenUsage(input_tokens=3)),
        ChoiceEnd(choice=1, reason="length"),
        ChoiceEnd(choice=0, reason="stop", stop_sequence="END"),
        ReplyUsage(usage=TokenUsage(input_tokens=3, output_tokens=4), service_tier="standard"),
    ]
    reply = collected("x", events)
    assert [(one.index, one.finish, one.stop_sequence) for one in reply.choices] == [
        (0, "stop", "END"),
        (1, "length", None),
    ]
    assert reply.usage == TokenUsage(input_tokens=3, output_tokens=4)
    assert reply.service_tier == "standard"


def test_a_part_that_was_not_begun_is_refused() -> None:
    collector = Collector("x")
    collector.take(ReplyStart(id="m", model="x"))
    try:
        collector.take(PartDelta(choice=0, part=0, text="a"))
    except ValueError as error:
        assert "part 0 of choice 0" in str(error)
    else:
        raise AssertionError("it was taken")


def test_events_are_not_changed_by_collecting() -> None:
    grew = PartDelta(choice=0, part=0, text="a", extra={"one": 1})
    before = msgspec.json.encode(grew)
    began = PartStart(choice=0, part=0, kind="text")
    more = PartDelta(choice=0, part=0, text="b", extra={"two": 2})
    collected("x", [began, grew, more])
    assert msgspec.json.encode(grew) == before
