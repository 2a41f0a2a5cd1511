"""Answers as bytes and back, and which are worth it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.gateway.cache.kept import MOST_BYTES, Kept, is_worth_keeping, read, written
from headrace.gateway.cache.recording import RecordingTally
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.event import PartDelta, ReplyFailure
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish
from headrace.protocol.neutral.usage import TokenUsage

REPLY = ChatReply(
    dialect="anthropic",
    id="msg_1",
    model="m",
    choices=(
        Choice(
            parts=(
                Thinking(text="hm", signature=Signature("anthropic", "c2ln"), id="t1"),
                Thinking(text="", signature=Signature("anthropic", "eHg="), redacted=True),
                Text(text="Hello \u00e4", extra={"citations": [{"a": 1.5}]}),
                ToolCall(id="c1", name="f", arguments='{"a": 1}', extra={"caller": {"x": None}}),
                Media(kind="image", mime="image/png", data="AAAA"),
                Opaque("anthropic", {"type": "server_tool_use"}),
                Refusal("no"),
            ),
            finish="tool_calls",
            extra={"kept": True},
        ),
        Choice(index=1, parts=(Text(text="no"),), finish="stop", stop_sequence="END",
               logprobs=[{"token": "a", "logprob": -0.1}]),
    ),
    usage=TokenUsage(input_tokens=3, cache_read_tokens=4, output_tokens=5, reasoning_tokens=2),
    created_s=7,
    service_tier="standard",
    extra={"x_new_field": [1, 2.5]},
)  # fmt: skip
KEPT = Kept(reply=REPLY, at_s=1.5, model="chat", target="a/m", provider="a", ignored=("seed",))


def test_an_answer_comes_back_as_it_was() -> None:
    data = written(KEPT)
    assert data is not None and read(data) == KEPT


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\x00", b'{"reply": 1}', b"[" * 100_000])
def test_damaged_bytes_are_no_answer(data: bytes) -> None:
    assert read(data) is None
    whole = written(KEPT)
    assert whole is not None and read(whole[:-1]) is None


def test_what_would_not_come_back_is_not_kept() -> None:
    def kept(**change: Any) -> Kept:
        return msgspec.structs.replace(KEPT, reply=msgspec.structs.replace(REPLY, **change))

    assert written(kept(extra={"a": (1, 2)})) is None, "a tuple comes back as a list"
    assert written(kept(extra={"a": object()})) is None
    assert written(kept(id="\ud800")) is None
    assert written(kept(id="x" * MOST_BYTES)) is None


def with_finish(finish: Finish | None) -> ChatReply:
    choice = Choice(parts=(Text(text="x"),), finish=finish)
    return ChatReply(dialect="d", id="i", model="m", choices=(choice,))


@pytest.mark.parametrize(
    ("finish", "worth"),
    [("stop", True), ("length", True), ("tool_calls", True), ("content_filter", False),
     ("pause", False), (None, False)],
)  # fmt: skip
def test_which_endings_are_kept(finish: Finish | None, worth: bool) -> None:
    assert is_worth_keeping(with_finish(finish)) == worth
    tally = RecordingTally(1, "d")
    tally.take_reply(with_finish(finish))
    assert (tally.reply is not None) == worth


def test_nothing_and_results_of_tools_are_not_kept() -> None:
    assert not is_worth_keeping(ChatReply(dialect="d", id="i", model="m", choices=()))
    result = Choice(parts=(ToolResult(call_id="c", content=()),), finish="stop")
    reply = ChatReply(dialect="d", id="i", model="m", choices=(result,))
    assert written(msgspec.structs.replace(KEPT, reply=reply)) is None


def test_what_a_stream_cannot_tell_is_not_kept() -> None:
    call = Choice(parts=(ToolCall(id="c", name="f", arguments="{}"),), finish="tool_calls")
    unsaid = msgspec.structs.replace(call, logprobs=[{"token": "a", "logprob": -0.1}])
    for one, worth in ((call, True), (unsaid, False)):
        reply = ChatReply(dialect="d", id="i", model="m", choices=(one,))
        assert is_worth_keeping(reply) == worth


def test_a_stream_is_recorded_whole_or_not_at_all() -> None:
    events = list(replayed(REPLY))
    tally = RecordingTally(1, "anthropic")
    for event in events:
        assert tally.reply is None
        tally.take(event)
    assert tally.reply is not None and tally.reply.choices == REPLY.choices
    assert tally.usage == (REPLY.usage, "provider")

    cut = RecordingTally(1, "anthropic")
    for event in events[:-1]:
        cut.take(event)
    assert cut.reply is None
    cut.take(ReplyFailure(Failure(kind="network", message="gone")))
    assert cut.reply is None


def test_what_grows_too_large_is_let_go_of_but_counted() -> None:
    events = list(replayed(with_finish("stop")))
    tally = RecordingTally(1, "d")
    for event in events:
        if isinstance(event, PartDelta):
            for _ in range(9):
                tally.take(msgspec.structs.replace(event, text="x" * 2**20))
        tally.take(event)
    assert tally.reply is None and tally.ended and tally.usage[0].output_tokens > 2 * 2**20


def test_a_reader_that_breaks_the_grammar_breaks_nothing_else() -> None:
    tally = RecordingTally(1, "d")
    tally.take(PartDelta(choice=0, part=3, text="x"))
    for event in replayed(with_finish("stop")):
        tally.take(event)
    assert tally.ended and tally.reply is None
