from __future__ import annotations

import json
from typing import Any

from headrace.protocol.dialects.openai_responses import PROVIDER
from headrace.protocol.dialects.openai_responses.reply.stream_reader import ResponsesStreamReader
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
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
