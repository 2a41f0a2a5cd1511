"""Any answer that the neutral form can tell, as clients of this API read it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.openai_responses import CLIENT, PROVIDER
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.part import Part, Refusal, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.openai_responses.samples import read, told
from tests.protocol.neutral.streams import assert_grammar, read_stream

_SIGNATURES = st.none() | st.builds(
    Signature,
    st.sampled_from(["anthropic", "gemini", "openai"]),
    st.text("ab:=", min_size=1, max_size=4),
)
_PIECES = st.lists(st.text("aé\u2028👋", max_size=3), max_size=3)


@st.composite
def _events(draw: st.DrawFn) -> list[Event]:
    """A stream that keeps the grammar."""
    events: list[Event] = [ReplyStart(id="x", model="m")]
    number = 0
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["text", "refusal", "thinking", "redacted", "calls"]))
        if kind == "redacted":
            value = Thinking(text="", redacted=True, signature=Signature("anthropic", "r"))
            events.append(CompletePart(choice=0, part=number, value=value))
            number += 1
        elif kind == "calls":
            count = draw(st.integers(1, 3))
            events += _calls(draw, number, count)
            number += count
        else:
            pieces = draw(_PIECES)
            signature = draw(_SIGNATURES) if kind != "refusal" else None
            if kind == "thinking" and signature is None and not any(pieces):
                pieces = ["hm"]
            events.append(PartStart(choice=0, part=number, kind=kind))  # type: ignore[arg-type]
            events += [PartDelta(choice=0, part=number, text=one) for one in pieces]
            events.append(PartEnd(choice=0, part=number, signature=signature))
            number += 1
    reason = draw(st.sampled_from(["stop", "length", "content_filter"]))
    usage = TokenUsage(input_tokens=draw(st.integers(0, 9)), reasoning_tokens=2)
    return [*events, ChoiceEnd(choice=0, reason=reason), ReplyUsage(usage=usage), ReplyEnd()]


def _calls(draw: st.DrawFn, first: int, count: int) -> list[Event]:
    """Calls side by side, their pieces in any order."""
    numbers = range(first, first + count)
    begun: list[Event] = [
        PartStart(choice=0, part=one, kind="tool_call", id=f"call_{one}", name="f")
        for one in numbers
    ]
    pieces = [(one, piece) for one in numbers for piece in draw(_PIECES)]
    grown = [
        PartDelta(choice=0, part=one, text=piece) for one, piece in draw(st.permutations(pieces))
    ]
    ended = [
        PartEnd(choice=0, part=one, signature=draw(_SIGNATURES))
        for one in draw(st.permutations(list(numbers)))
    ]
    return [*begun, *grown, *ended]


def check_order(events: list[dict[str, Any]]) -> None:
    """Every item and part begins once, grows and ends once with all that it grew to."""
    items: dict[int, dict[str, Any]] = {}
    parts: dict[tuple[Any, ...], str] = {}
    done: dict[int, dict[str, Any]] = {}
    for event in events:
        kind, index = event["type"], event.get("output_index")
        if kind == "response.output_item.added":
            assert index == len(items)
            items[index] = event["item"]
        elif kind == "response.output_item.done":
            assert index in items and index not in done
            done[index] = event["item"]
            assert event["item"]["id"] == items[index]["id"]
            assert event["item"].get("call_id") == items[index].get("call_id")
        elif index is not None:
            assert event["item_id"] == items[index]["id"] and index not in done
            at = (index, event.get("content_index"), event.get("summary_index"))
            if kind.endswith("part.added"):
                assert at not in parts
                parts[at] = ""
            elif kind.endswith(".delta"):
                parts[at] = parts.get(at, "") + event["delta"]
            elif kind.endswith(("text.done", "arguments.done", "refusal.done")):
                names = ("text", "arguments", "refusal")
                assert next(event[one] for one in names if one in event) == parts.get(at, "")
    assert list(items) == sorted(done)
    whole = events[-1]["response"]["output"]
    assert whole == [done[one] for one in sorted(done)]


def said(parts: tuple[Part, ...], kind: type[Any]) -> list[Any]:
    return [one for one in parts if isinstance(one, kind)]


@pytest.mark.long
@settings(max_examples=60, deadline=None, derandomize=True)
@given(_events())
def test_any_answer_comes_out_in_order_and_is_read_again(events: list[Event]) -> None:
    assert_grammar(events)
    writer = CLIENT.stream_writer(read())
    raw = b"".join([writer.write(one) for one in events])
    check_order(told(raw))
    before = collected("x", events)
    choices = before.choices
    parts = choices[0].parts if choices else ()

    again = read_stream(PROVIDER.stream_reader(read()), raw)
    assert_grammar(again)
    assert isinstance(again[-1], ReplyEnd)
    (choice,) = collected("x", again).choices
    assert [one.text for one in said(choice.parts, Text)] == [one.text for one in said(parts, Text)]
    assert said(choice.parts, Refusal) == said(parts, Refusal)
    arguments = [(one.name, one.arguments) for one in said(parts, ToolCall)]
    assert [(one.name, one.arguments) for one in said(choice.parts, ToolCall)] == arguments
    assert collected("x", again).usage == before.usage

    (turn,) = read(input=told(raw)[-1]["response"]["output"]).messages or [None]
    if turn is None:
        assert parts == ()
        return
    calls = {one.id: one for one in said(parts, ToolCall)}
    assert {one.id: _without_status(one) for one in said(turn.parts, ToolCall)} == calls
    assert said(turn.parts, Text) == said(parts, Text)
    assert signatures(turn.parts) == signatures(parts)


def _without_status(call: ToolCall) -> ToolCall:
    """A call without the word that its item was incomplete, which its arguments then are."""
    extra = dict(call.extra)
    if extra.pop("status", None) == "incomplete":
        with pytest.raises(json.JSONDecodeError):
            json.loads(call.arguments)
    return msgspec.structs.replace(call, extra=extra)


def signatures(parts: tuple[Part, ...]) -> list[tuple[str, Signature]]:
    """Of thoughts, with what they sign; OpenAI's own is of a whole item."""
    return [
        ("" if one.signature.origin == "openai" else one.text, one.signature)
        for one in said(parts, Thinking)
        if one.signature is not None
    ]


def test_a_deep_answer_can_be_written() -> None:
    deep: Any = {}
    for _ in range(380):
        deep = {"a": deep}
    call = read(metadata=None, tools=[{"type": "x", "deep": deep}])
    written = b"".join(
        map(CLIENT.stream_writer(call).write, [ReplyStart(id="x", model="m"), ReplyEnd()])
    )
    assert told(written)[0]["response"]["tools"][0]["type"] == "x"
    assert msgspec.json.decode(PROVIDER.write_call(call, "m").body)["tools"][0]["type"] == "x"
