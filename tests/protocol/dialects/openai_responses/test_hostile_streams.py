"""Streams that end too early, are damaged, or never end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import (
    Event,
    PartDelta,
    ReplyFailure,
)
from tests.protocol.dialects.openai_responses.samples import (
    function_call,
    message,
    response,
    sse,
)
from tests.protocol.dialects.openai_responses.test_stream_reader import (
    CREATED,
    added,
    done,
    events,
    grew,
    new,
    text_stream,
)
from tests.protocol.neutral.streams import assert_grammar, read_stream


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (
            {
                "type": "response.failed",
                "response": response(
                    status="failed", error={"code": "server_error", "message": "no"}
                ),
            },
            "server",
        ),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "no"}, "rate_limit"),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}},
            "bad_request",
        ),
        (
            {"type": "error", "error": {"code": "context_length_exceeded", "message": "no"}},
            "context_length",
        ),
        ({"type": "error", "code": "502", "message": "no"}, "server"),
        ({"type": "response.failed"}, "server"),
        ({"type": "message", "error": {"message": "no", "code": 429}}, "rate_limit"),
    ],
)
def test_failures_in_mid_stream(event: dict[str, Any], kind: str) -> None:
    found = events(CREATED, added(0, message("")), grew("output_text", 0, "Hi"), event)
    last = found[-1]
    assert isinstance(last, ReplyFailure) and last.failure.kind == kind
    assert last.failure.message
    assert PartDelta(choice=0, part=0, text="Hi") in found


def test_a_stream_without_an_end_was_cut() -> None:
    raw = sse(*text_stream("Hi"))
    for cut in range(0, len(raw) - 1, 7):
        last = read_stream(new(), raw[:cut])[-1]
        assert isinstance(last, ReplyFailure) and last.failure.kind == "network"


def test_nothing_comes_after_the_end() -> None:
    reader = new()
    reader.feed(sse(*text_stream("Hi")) + b"data: [DONE]\n\n")
    assert reader.feed(sse(*text_stream("Ho"))) == [] and reader.end() == []


@pytest.mark.parametrize("data", [b"{", b"[]", b"3", b"[" * 100_000, b"\xff"])
def test_damaged_events(data: bytes) -> None:
    last = read_stream(new(), sse(CREATED) + b"data: " + data + b"\n\n")[-1]
    assert isinstance(last, ReplyFailure) and last.failure.kind == "damaged"


@pytest.mark.long
def test_a_stream_of_endless_items_is_cut() -> None:
    reader = new()
    last: Event | None = None
    for block in range(80):
        raw = (added(block * 1000 + one, {"type": "message"}) for one in range(1000))
        found = reader.feed(sse(*raw))
        last = found[-1] if found else last
    assert isinstance(last, ReplyFailure) and last.failure.kind == "damaged"


_ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "reasoning", "web_search_call", 1]),
        "id": st.sampled_from(["a", "b", 3]),
        "name": st.sampled_from(["f", "", None]),
        "call_id": st.sampled_from(["c", "", 1]),
        "arguments": st.sampled_from(["", "{}", 3]),
        "encrypted_content": st.sampled_from(["x", None, 1]),
        "content": st.lists(
            st.sampled_from(
                [
                    {"type": "output_text", "text": "ab"},
                    {"type": "output_text", "text": "abcd", "annotations": [{"type": "x"}, 1]},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "reasoning_text", "text": "hm"},
                    {"type": "odd"},
                    3,
                ]
            ),
            max_size=3,
        ),
        "summary": st.lists(st.sampled_from([{"type": "summary_text", "text": "s"}, None])),
    },
)
_EVENT = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                "response.created",
                "response.output_item.added",
                "response.output_item.done",
                "response.content_part.added",
                "response.content_part.done",
                "response.output_text.delta",
                "response.refusal.delta",
                "response.reasoning_text.delta",
                "response.reasoning_summary_text.delta",
                "response.function_call_arguments.delta",
                "response.completed",
                "response.web_search_call.searching",
            ]
        )
    },
    optional={
        "output_index": st.sampled_from([0, 1, 2, -1, "x", None]),
        "content_index": st.sampled_from([0, 1, None]),
        "summary_index": st.sampled_from([0, 1]),
        "delta": st.sampled_from(["", "a", "bc", 3]),
        "logprobs": st.sampled_from([[], None, [{"token": "a"}], 3]),
        "item": _ITEM,
        "part": st.sampled_from(
            [{"type": "output_text", "text": "abc"}, {"type": "refusal", "refusal": "x"}, None]
        ),
        "response": st.fixed_dictionaries({}, optional={"output": st.lists(_ITEM, max_size=3)}),
    },
)


@pytest.mark.long
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(_EVENT, max_size=14))
def test_any_events_keep_the_grammar(raw: list[dict[str, Any]]) -> None:
    stream = sse(*raw)
    found = read_stream(new(), stream)
    assert_grammar(found)
    pieces = [stream[at : at + 7] for at in range(0, len(stream), 7)]
    assert read_stream(new(), *pieces) == found
    collected("x", found)


def test_a_provider_cannot_have_us_hold_everything() -> None:
    """Texts that come while a function call is open wait for its end."""
    reader = new()
    found = reader.feed(sse(CREATED, added(0, function_call("f", ""))))
    for index in range(1, 80):
        item = message("x" * 2**20, id=f"msg_{index}")
        found += reader.feed(sse(done(index, item)))
    assert isinstance(found[-1], ReplyFailure) and found[-1].failure.kind == "damaged"


@pytest.mark.long
def test_items_without_content_are_counted_too() -> None:
    reader = new()
    found = reader.feed(sse(CREATED))
    for block in range(80):
        raw = (done(block * 1000 + one, {"type": "message"}) for one in range(1000))
        found = reader.feed(sse(*raw)) or found
    assert isinstance(found[-1], ReplyFailure) and found[-1].failure.kind == "damaged"
