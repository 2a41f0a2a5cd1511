from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from headrace.protocol.dialects.openai_responses import CLIENT
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.carried_id import pack
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    Kind,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.part import (
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
from tests.protocol.dialects.openai_responses.samples import PATH, read, streamed

_EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
BEGAN = ReplyStart(id="chatcmpl-1", model="m", created_s=1700000000)
USAGE = TokenUsage(input_tokens=3, cache_read_tokens=2, output_tokens=4, reasoning_tokens=1)
END: list[Event] = [ChoiceEnd(choice=0, reason="stop"), ReplyUsage(usage=USAGE), ReplyEnd()]


def part(number: int, kind: Kind, *pieces: str, **fields: Any) -> list[Event]:
    ended = PartEnd(choice=0, part=number, signature=fields.pop("signature", None))
    began = PartStart(choice=0, part=number, kind=kind, **fields)
    return [began, *(PartDelta(choice=0, part=number, text=one) for one in pieces), ended]


def client_reads(call: ChatCall, events: list[Event]) -> list[dict[str, Any]]:
    """The written events, after openai's own models took each and its stream all of them."""
    found = streamed(call, events)
    for one in found:
        _EVENTS.validate_python(one)
    if found[-1]["type"] == "response.completed":
        final = openai_reads(b"".join(map(CLIENT.stream_writer(call).write, events)))
        Response.model_validate(found[-1]["response"])
        assert _unparsed([one.to_dict() for one in final.output]) == output(found)
    return found


def openai_reads(raw: bytes) -> Any:
    """The response that openai's accumulating stream makes of a stream."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=raw, headers={"content-type": CLIENT.stream_type()})

    transport = httpx.MockTransport(answer)
    client = openai.OpenAI(
        api_key="k", base_url="http://x/v1", http_client=httpx.Client(transport=transport)
    )
    with client.responses.stream(model="m", input="Hi") as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def _unparsed(value: Any) -> Any:
    """Without what the package adds: its own reading of texts and arguments."""
    if isinstance(value, dict):
        return {name: _unparsed(one) for name, one in value.items() if "parsed" not in name}
    return [_unparsed(one) for one in value] if isinstance(value, list) else value


def types(events: list[dict[str, Any]]) -> list[str]:
    return [one["type"].removeprefix("response.") for one in events]


def output(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = events[-1]["response"]["output"]
    return found


def test_text() -> None:
    found = client_reads(read(), [BEGAN, *part(0, "text", "Hel", "lo"), *END])
    assert types(found) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    item = {
        "id": "msg_hr_chatcmpl-1_0",
        "type": "message",
        "status": "completed",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Hello"}],
        "role": "assistant",
    }
    assert found[2]["item"] == {**item, "status": "in_progress", "content": []}
    assert found[4] == {
        "type": "response.output_text.delta",
        "item_id": "msg_hr_chatcmpl-1_0",
        "output_index": 0,
        "content_index": 0,
        "delta": "Hel",
        "logprobs": [],
        "sequence_number": 4,
    }
    assert found[6]["text"] == "Hello"
    assert found[8]["item"] == item
    whole = found[-1]["response"]
    assert found[0]["response"]["status"] == "in_progress" and found[0]["response"]["output"] == []
    assert (whole["id"], whole["status"], whole["output"]) == (
        "resp_chatcmpl-1",
        "completed",
        [item],
    )
    assert whole["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 10,
    }


def test_texts_one_after_another_share_a_message() -> None:
    found = client_reads(read(), [BEGAN, *part(0, "text", "a"), *part(1, "refusal", "b"), *END])
    assert types(found)[2:-1] == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
    ]
    assert [one["type"] for one in output(found)[0]["content"]] == ["output_text", "refusal"]


def test_thoughts() -> None:
    """Another vendor's thought has its text as content, and its signature sealed."""
    signature = Signature("anthropic", "sig")
    events = [BEGAN, *part(0, "thinking", "h", "m", signature=signature), *part(1, "text", "a")]
    found = client_reads(read(), [*events, *END])
    assert types(found)[2:9] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    assert output(found)[0] == {
        "id": "rs_hr_chatcmpl-1_0",
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": "headrace:anthropic:sig",
    }


def test_summaries_of_one_item() -> None:
    hidden = Thinking(text="", redacted=True, signature=Signature("openai", "gAAA"), id="rs_1")
    own = ReplyStart(id="resp_1", model="m", created_s=1, extra={"object": "response"})
    found = client_reads(
        read(),
        [
            own,
            *part(0, "thinking", "a", id="rs_1", summary=True),
            *part(1, "thinking", "b", id="rs_1", summary=True),
            CompletePart(choice=0, part=2, value=hidden),
            *END,
        ],
    )
    assert types(found)[2:-1] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    assert [one["summary_index"] for one in found if "summary_index" in one] == [0] * 4 + [1] * 4
    assert output(found) == [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [
                {"type": "summary_text", "text": "a"},
                {"type": "summary_text", "text": "b"},
            ],
            "encrypted_content": "gAAA",
        }
    ]


def test_function_calls_side_by_side() -> None:
    def grew(number: int, text: str) -> Event:
        return PartDelta(choice=0, part=number, text=text)

    found = client_reads(
        read(),
        [
            BEGAN,
            PartStart(choice=0, part=0, kind="tool_call", id="a", name="f"),
            PartStart(choice=0, part=1, kind="tool_call", id="b", name="g"),
            grew(1, "{"),
            grew(1, '"x":'),
            grew(0, "{"),
            grew(1, "1}"),
            grew(0, "}"),
            PartEnd(choice=0, part=1),
            PartEnd(choice=0, part=0),
            ChoiceEnd(choice=0, reason="tool_calls"),
            ReplyEnd(),
        ],
    )
    assert [(one["call_id"], one["name"], one["arguments"]) for one in output(found)] == [
        ("a", "f", "{}"),
        ("b", "g", '{"x":1}'),
    ]
    pieces: dict[str, str] = {}
    for one in found:
        if one["type"] == "response.function_call_arguments.delta":
            pieces[one["item_id"]] = pieces.get(one["item_id"], "") + one["delta"]
        if one["type"] == "response.function_call_arguments.done":
            assert one["arguments"] == pieces[one["item_id"]]
    assert list(pieces) == ["fc_hr_chatcmpl-1_1", "fc_hr_chatcmpl-1_0"]
    assert found[-1]["response"]["usage"] is None


def test_a_call_without_arguments() -> None:
    found = client_reads(read(), [BEGAN, *part(0, "tool_call", id="a", name="f"), *END])
    assert types(found)[2:-1] == [
        "output_item.added",
        "function_call_arguments.done",
        "output_item.done",
    ]


def test_signatures_of_calls_and_texts_come_back() -> None:
    sig = Signature("gemini", "sig")
    events = [
        BEGAN,
        *part(0, "text", "Hi", signature=sig),
        *part(1, "tool_call", "{}", id="a", name="f", signature=sig),
        *part(2, "tool_call", "{", "}", id="b", name="g", signature=sig),
        *END,
    ]
    found = client_reads(read(), events)
    assert output(found)[2]["call_id"] == pack("a", sig)
    assert output(found)[3]["call_id"] == "b"
    again = read(input=output(found))
    assert again.messages[0].parts == (
        Text(text="Hi", signature=sig),
        ToolCall(id="a", name="f", arguments="{}", signature=sig),
        ToolCall(id="b", name="g", arguments="{}", signature=sig),
    )


def test_line_ends_of_unicode_are_escaped() -> None:
    raw = b"".join(
        map(CLIENT.stream_writer(read()).write, [BEGAN, *part(0, "text", "a\u2028b\x85c"), *END])
    )
    assert len(raw.decode().splitlines()) == raw.count(b"\n")


def test_logprobs_and_annotations() -> None:
    one = {"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    citation = {
        "type": "url_citation",
        "url_citation": {"url": "https://x", "title": "t", "start_index": 0, "end_index": 1},
    }
    flat = {"type": "url_citation", **citation["url_citation"]}  # type: ignore[dict-item]
    events: list[Event] = [
        BEGAN,
        PartStart(choice=0, part=0, kind="text"),
        PartDelta(choice=0, part=0, text="Hi", logprobs=[one]),
        PartDelta(choice=0, part=0, text="", extra={"annotations": [citation, {"type": "odd"}]}),
        PartEnd(choice=0, part=0),
        *END,
    ]
    found = client_reads(read(), events)
    (content,) = output(found)[0]["content"]
    assert content["annotations"] == [flat]
    assert content["logprobs"] == [{**one, "bytes": [72, 105]}]
    told_annotation = [one for one in found if one["type"].endswith("annotation.added")]
    assert [one["annotation"] for one in told_annotation] == [flat]


@pytest.mark.parametrize(
    ("told_tier", "expected"),
    [("flex", "flex"), ("standard", "default"), ("odd", None), (None, None)],
)
def test_service_tiers_are_those_that_clients_know(told_tier: str | None, expected: str) -> None:
    events = [*END[:1], ReplyUsage(usage=USAGE, service_tier=told_tier), ReplyEnd()]
    found = client_reads(read(service_tier="auto"), [BEGAN, *events])
    assert found[-1]["response"]["service_tier"] == expected


def test_other_choices_are_not_told() -> None:
    events: list[Event] = [
        BEGAN,
        *part(0, "text", "a"),
        PartStart(choice=1, part=0, kind="text"),
        PartDelta(choice=1, part=0, text="b"),
        PartEnd(choice=1, part=0),
        ChoiceEnd(choice=1, reason="length"),
        *END,
    ]
    found = client_reads(read(), events)
    assert len(output(found)) == 1 and found[-1]["type"] == "response.completed"


PARTS: tuple[Part, ...] = (
    Thinking(text="t", signature=Signature("anthropic", "s")),
    Thinking(text="", redacted=True, signature=Signature("anthropic", "r")),
    Text(text="a"),
    Text(text="b", signature=Signature("gemini", "g")),
    Refusal("c"),
    Media(kind="image", mime="image/png", data="AAAA"),
    Opaque("anthropic", {"type": "server_tool_use"}),
    Thinking(text="u", summary=True, id="x"),
    ToolCall(id="1", name="f", arguments="{}", signature=Signature("gemini", "h")),
    ToolCall(id="2", name="g", arguments=""),
    Text(text=""),
)


def _replies() -> Iterator[ChatReply]:
    for count in range(len(PARTS) + 1):
        for reason in ("stop", "length"):
            yield ChatReply(
                dialect="x",
                id="abc def/é",
                model="m",
                choices=(Choice(parts=PARTS[:count], finish=reason),),
                usage=USAGE,
                service_tier="flex",
            )


def test_a_stream_says_what_the_whole_reply_says() -> None:
    for reply in _replies():
        call = read(tools=[{"type": "function", "name": "f"}], instructions="Be brief.")
        found = client_reads(call, list(replayed(reply)))
        whole = json.loads(CLIENT.write_reply(reply, call))
        assert found[-1]["response"] == whole
        Response.model_validate(whole)


def test_what_a_client_gives_back_is_what_the_model_said() -> None:
    reply = ChatReply(dialect="x", id="1", model="m", choices=(Choice(parts=PARTS),))
    whole = json.loads(CLIENT.write_reply(reply, read()))
    (turn,) = read(input=whole["output"]).messages
    kept = [one for one in PARTS if not isinstance(one, Opaque)]
    kept[6] = Thinking(text="u", summary=True)
    assert list(turn.parts) == kept


def test_the_request_is_echoed() -> None:
    body = {
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
        "temperature": 0.5,
        "max_output_tokens": 9,
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "max", "summary": "auto"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "previous_response_id": "resp_0",
        "truncation": "auto",
        "user": "u",
        "store": True,
    }
    reply = ChatReply(dialect="x", id="1", model="m", choices=(Choice(),), created_s=5)
    raw = CLIENT.write_reply(
        reply, CLIENT.read_call(json.dumps(body | {"model": "m", "input": "x"}).encode(), PATH, {})
    )
    whole = json.loads(raw)
    Response.model_validate(whole)
    for name in body.keys() - {"tools", "store", "reasoning"}:
        assert whole[name] == body[name], name
    assert whole["reasoning"] == {"effort": "max", "summary": "auto"}
    assert whole["store"] is False and whole["created_at"] == 5
    assert [one["type"] for one in whole["tools"]] == ["function", "web_search"]
