from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.openai_responses import PROVIDER
from headrace.protocol.dialects.openai_responses.stream_reader import ResponsesStreamReader
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.part import (
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.openai_responses.samples import (
    function_call,
    message,
    read,
    response,
    sse,
)
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream

USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
CREATED = {"type": "response.created", "response": response(status="in_progress")}


def new() -> ResponsesStreamReader:
    return PROVIDER.stream_reader(read())


def events(*raw: dict[str, Any]) -> list[Event]:
    found = read_stream(new(), sse(*raw))
    assert_grammar(found)
    return found


def parts(*raw: dict[str, Any]) -> tuple[Part, ...]:
    reply = collected("openai-responses", events(*raw))
    return reply.choices[0].parts if reply.choices else ()


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    empty = {name: [] if isinstance(one, list) else one for name, one in item.items()}
    if "arguments" in empty:
        empty["arguments"] = ""
    return {"type": "response.output_item.added", "output_index": index, "item": empty}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def grew(kind: str, index: int, delta: str, at: int = 0) -> dict[str, Any]:
    name = "summary_index" if "summary" in kind else "content_index"
    return {"type": f"response.{kind}.delta", "output_index": index, name: at, "delta": delta}


def whole(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "type": "response.completed",
        "response": response(output=list(output), usage=USAGE, **fields),
    }


def text_stream(*deltas: str) -> list[dict[str, Any]]:
    item = message("".join(deltas))
    part = item["content"][0]
    place = {"output_index": 0, "content_index": 0}
    return [
        CREATED,
        {"type": "response.in_progress", "response": response(status="in_progress")},
        added(0, item),
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *(grew("output_text", 0, one) for one in deltas),
        {"type": "response.output_text.done", **place, "text": part["text"]},
        {"type": "response.content_part.done", **place, "part": part},
        done(0, item),
        whole(item),
    ]


def test_a_text() -> None:
    got = events(*text_stream("Hel", "lo"))
    began = got[0]
    assert isinstance(began, ReplyStart) and (began.id, began.model) == ("resp_1", "gpt-5")
    assert got[1:] == [
        PartStart(choice=0, part=0, kind="text", extra={"item_id": "msg_1"}),
        PartDelta(choice=0, part=0, text="Hel"),
        PartDelta(choice=0, part=0, text="lo"),
        PartEnd(choice=0, part=0),
        ChoiceEnd(choice=0, reason="stop"),
        ReplyUsage(usage=TokenUsage(input_tokens=3, output_tokens=2)),
        ReplyEnd(),
    ]


def test_any_cut_gives_the_same_events() -> None:
    stream = b": hello\r\n\r\n" + sse(*text_stream("Grüße ", "👋🏽", "\u2028!"))
    raw = stream.replace(b"\\u", b"\\u")  # escapes stay; raw characters below
    read_at_every_cut(new, raw)
    plain = "\n\n".join(
        f"event: {one['type']}\ndata: {json.dumps(one, ensure_ascii=False)}"
        for one in text_stream("Grüße ", "👋🏽")
    )
    found = read_at_every_cut(new, plain.encode() + b"\n\n")
    assert collected("x", found).choices[0].parts[0] == Text(
        text="Grüße 👋🏽", extra={"item_id": "msg_1"}
    )


def test_crlf_and_events_without_names() -> None:
    named = sse(*text_stream("a"))
    lines = [one for one in named.split(b"\n") if not one.startswith(b"event:")]
    assert read_stream(new(), b"\r\n".join(lines)) == read_stream(new(), named)


def test_reasoning_with_summaries_and_a_signature() -> None:
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "ab"}, {"type": "summary_text", "text": "c"}],
        "encrypted_content": "gAAA",
    }
    raw = [
        CREATED,
        added(0, {**item, "encrypted_content": "early"}),
        {
            "type": "response.reasoning_summary_part.added",
            "output_index": 0,
            "summary_index": 0,
            "part": {"type": "summary_text", "text": ""},
        },
        grew("reasoning_summary_text", 0, "a"),
        grew("reasoning_summary_text", 0, "b"),
        {
            "type": "response.reasoning_summary_part.done",
            "output_index": 0,
            "summary_index": 0,
            "part": {"type": "summary_text", "text": "ab"},
        },
        grew("reasoning_summary_text", 0, "c", at=1),
        done(0, item),
        whole(item),
    ]
    assert parts(*raw) == (
        Thinking(text="ab", summary=True, id="rs_1"),
        Thinking(text="c", summary=True, id="rs_1"),
        Thinking(text="", redacted=True, signature=Signature("openai", "gAAA"), id="rs_1"),
    )


def test_parallel_function_calls() -> None:
    one, two = function_call("f", '{"a":1}', "fc_1"), function_call("g", "{}", "fc_2")
    raw = [
        CREATED,
        added(0, one),
        added(1, two),
        grew("function_call_arguments", 0, '{"a"'),
        grew("function_call_arguments", 1, "{}"),
        grew("function_call_arguments", 0, ":1}"),
        done(1, two),
        done(0, one),
        whole(one, two),
    ]
    found = events(*raw)
    assert collected("x", found).choices[0].parts == (
        ToolCall(id="call_fc_1", name="f", arguments='{"a":1}', extra={"item_id": "fc_1"}),
        ToolCall(id="call_fc_2", name="g", arguments="{}", extra={"item_id": "fc_2"}),
    )
    assert ChoiceEnd(choice=0, reason="tool_calls") in found


def test_arguments_that_no_delta_had() -> None:
    item = function_call("f", '{"a":1}')
    got = parts(CREATED, added(0, item), done(0, item), whole(item))
    assert got == (
        ToolCall(id="call_fc_1", name="f", arguments='{"a":1}', extra={"item_id": "fc_1"}),
    )


def test_items_that_only_the_end_has() -> None:
    items = [message("Hi"), function_call("f", "{}")]
    assert parts(CREATED, whole(*items)) == (
        Text(text="Hi", extra={"item_id": "msg_1"}),
        ToolCall(id="call_fc_1", name="f", arguments="{}", extra={"item_id": "fc_1"}),
    )


def test_text_that_only_the_end_of_its_item_has() -> None:
    item = message("Hello")
    assert parts(CREATED, added(0, item), grew("output_text", 0, "He"), done(0, item), whole()) == (
        Text(text="Hello", extra={"item_id": "msg_1"}),
    )


def test_annotations_come_with_the_end_of_the_text() -> None:
    citation = {"type": "url_citation", "url": "https://x", "title": "t"}
    item = message("Hi")
    item["content"][0]["annotations"] = [citation]
    raw = [CREATED, added(0, item), grew("output_text", 0, "Hi"), done(0, item), whole(item)]
    neutral = (Citation(url="https://x", title="t"),)
    extra = {"item_id": "msg_1", "annotations": [citation]}
    assert parts(*raw) == (Text(text="Hi", citations=neutral, extra=extra),)


def test_a_refusal() -> None:
    item = {**message(""), "content": [{"type": "refusal", "refusal": "No."}]}
    raw = [
        CREATED,
        added(0, item),
        grew("refusal", 0, "No"),
        grew("refusal", 0, "."),
        done(0, item),
    ]
    assert parts(*raw, whole(item)) == (Refusal("No."),)


def test_items_of_openai_alone_come_when_they_are_whole() -> None:
    item = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    raw = [
        CREATED,
        added(0, {**item, "status": "in_progress"}),
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        done(0, item),
        whole(item),
    ]
    assert parts(*raw) == (Opaque("openai-responses", item),)


def test_a_message_within_the_reasoning_before_it() -> None:
    """OpenRouter ends the reasoning item last."""
    thought = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": "gAAA",
    }
    text = message("4")
    raw = [
        CREATED,
        added(0, thought),
        grew("reasoning_text", 0, "hm"),
        added(1, text),
        grew("output_text", 1, "4"),
        done(1, text),
        done(0, thought),
        whole(thought, text),
    ]
    assert parts(*raw) == (
        Thinking(text="hm", id="rs_1"),
        Text(text="4", extra={"item_id": "msg_1"}),
        Thinking(text="", redacted=True, signature=Signature("openai", "gAAA"), id="rs_1"),
    )


def test_a_message_within_a_function_call_is_told_after_it() -> None:
    call, text = function_call("f", "{}"), message("Hi")
    raw = [
        CREATED,
        added(0, call),
        added(1, text),
        grew("output_text", 1, "H"),
        grew("function_call_arguments", 0, "{}"),
        grew("output_text", 1, "i"),
        done(1, text),
        done(0, call),
        whole(call, text),
    ]
    assert parts(*raw) == (
        ToolCall(id="call_fc_1", name="f", arguments="{}", extra={"item_id": "fc_1"}),
        Text(text="Hi", extra={"item_id": "msg_1"}),
    )


def test_logprobs() -> None:
    one = {"token": "Hi", "logprob": -0.1, "top_logprobs": [{"token": "Ho", "logprob": -2}]}
    item = message("Hi")
    raw = [
        CREATED,
        added(0, item),
        {**grew("output_text", 0, "Hi"), "logprobs": [one]},
        done(0, item),
        whole(item),
    ]
    (choice,) = collected("x", events(*raw)).choices
    assert choice.logprobs == [
        {
            "token": "Hi",
            "logprob": -0.1,
            "bytes": None,
            "top_logprobs": [{"token": "Ho", "logprob": -2, "bytes": None}],
        }
    ]


def test_incomplete() -> None:
    item = message("Hi", status="incomplete")
    end = whole(item, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    found = events(CREATED, added(0, item), done(0, item), {**end, "type": "response.incomplete"})
    assert ChoiceEnd(choice=0, reason="length") in found


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
@settings(max_examples=150, deadline=None, derandomize=True)
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
