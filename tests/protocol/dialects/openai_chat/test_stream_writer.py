"""Streams for clients, as the openai package reads them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from headrace.protocol.dialects.openai_chat import CLIENT
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import collected, replayed
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
from headrace.protocol.neutral.part import Media, Refusal, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.openai_chat.samples import GENERIC, chunks_of, read, stream_bytes
from tests.protocol.neutral.streams import read_stream

BEGAN = ReplyStart(
    id="r1", model="m", created_s=17, extra={"system_fingerprint": "fp"}, dialect="openai-chat"
)
USAGE = TokenUsage(input_tokens=3, cache_read_tokens=2, output_tokens=4, reasoning_tokens=1)
HELLO: list[Event] = [
    BEGAN,
    PartStart(choice=0, part=0, kind="text"),
    PartDelta(choice=0, part=0, text="Hel"),
    PartDelta(choice=0, part=0, text="lo"),
    PartEnd(choice=0, part=0),
    ChoiceEnd(choice=0, reason="stop"),
    ReplyUsage(usage=USAGE, service_tier="flex"),
    ReplyEnd(),
]


def chunks(events: list[Event], call: ChatCall | None = None) -> list[dict[str, Any]]:
    """The chunks, each of which the openai package understands."""
    found = chunks_of(stream_bytes(call or read(stream=True), events))
    for one in found:
        if "error" not in one:
            ChatCompletionChunk.model_validate(one)
            assert (one["id"], one["object"]) == ("r1", "chat.completion.chunk")
            assert (one["created"], one["model"]) == (17, "m")
    return found


def deltas(events: list[Event], **fields: Any) -> list[dict[str, Any]]:
    """The deltas of the first choice after the one with the role."""
    found = chunks(events, read(stream=True, **fields))
    choices = [choice for one in found for choice in one["choices"] if choice["index"] == 0]
    assert choices[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    return [one["delta"] for one in choices[1:]]


def test_a_plain_answer() -> None:
    found = chunks(HELLO)
    assert [one["choices"][0]["delta"] for one in found] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [one["choices"][0]["finish_reason"] for one in found] == [None, None, None, "stop"]
    assert all("usage" not in one for one in found)
    assert all(one["system_fingerprint"] == "fp" for one in found)
    assert stream_bytes(read(), HELLO).endswith(b"\n\ndata: [DONE]\n\n")


def test_usage_only_if_asked_for() -> None:
    found = chunks(HELLO, read(stream=True, stream_options={"include_usage": True}))
    assert [one["usage"] for one in found[:-1]] == [None] * 4
    last = found[-1]
    assert last["choices"] == [] and last["service_tier"] == "flex"
    assert last["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 5,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 0},
    }


CALLS: list[Event] = [
    BEGAN,
    PartStart(choice=0, part=0, kind="tool_call", id="c1", name="f"),
    PartStart(choice=0, part=1, kind="tool_call", id="c2", name="g"),
    PartDelta(choice=0, part=1, text="{}"),
    PartDelta(choice=0, part=0, text='{"a":1}'),
    PartEnd(choice=0, part=0, signature=Signature("gemini", "G")),
    PartEnd(choice=0, part=1),
    ChoiceEnd(choice=0, reason="tool_calls"),
    ReplyEnd(),
]


def test_tool_calls_have_an_index_always_and_an_id_once() -> None:
    assert deltas(CALLS)[:-1] == [
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "f", "arguments": ""},
                }
            ]
        },
        {
            "tool_calls": [
                {
                    "index": 1,
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "g", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "function": {"arguments": ""},
                    "extra_content": {"google": {"thought_signature": "G"}},
                }
            ]
        },
    ]


def test_an_older_client_gets_a_function_call() -> None:
    events = [one for one in CALLS if getattr(one, "part", 0) == 0]
    assert deltas(events, functions=[{"name": "f"}])[:2] == [
        {"function_call": {"name": "f", "arguments": ""}},
        {"function_call": {"arguments": '{"a":1}'}},
    ]
    found = chunks(events, read(functions=[{"name": "f"}]))
    assert found[-1]["choices"][0]["finish_reason"] == "function_call"


def test_the_openai_package_puts_the_answer_together() -> None:
    events = [*HELLO[:5], *CALLS[1:-2], ChoiceEnd(choice=0, reason="tool_calls"), *HELLO[6:]]
    call = read(stream=True, stream_options={"include_usage": True})
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks(
        [
            msgspec.structs.replace(one, part=one.part + 1) if one in CALLS[1:-2] else one
            for one in events
        ],
        call,
    ):
        chunk.pop("service_tier", None)
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    answer = state.get_final_completion()
    message = answer.choices[0].message
    assert message.content == "Hello"
    assert [
        (one.id, one.function.name, one.function.arguments) for one in message.tool_calls or ()
    ] == [("c1", "f", '{"a":1}'), ("c2", "g", "{}")]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage is not None and answer.usage.total_tokens == 10


def test_thoughts_and_their_signatures() -> None:
    events: list[Event] = [
        BEGAN,
        PartStart(choice=0, part=0, kind="thinking"),
        PartDelta(choice=0, part=0, text="a"),
        PartDelta(choice=0, part=0, text="b"),
        PartEnd(choice=0, part=0, signature=Signature("anthropic", "S")),
        CompletePart(
            choice=0,
            part=1,
            value=Thinking(text="", signature=Signature("anthropic", "R"), redacted=True),
        ),
        ChoiceEnd(choice=0, reason="stop"),
        ReplyEnd(),
    ]
    assert deltas(events)[:-1] == [
        {"reasoning_content": "a"},
        {"reasoning_content": "b"},
        {
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "text": "ab",
                    "signature": "S",
                    "format": "anthropic-claude-v1",
                    "index": 0,
                }
            ]
        },
        {
            "reasoning_details": [
                {
                    "type": "reasoning.encrypted",
                    "data": "R",
                    "format": "anthropic-claude-v1",
                    "index": 1,
                }
            ]
        },
    ]


def test_every_choice_has_its_role_and_its_end() -> None:
    events: list[Event] = [
        BEGAN,
        PartStart(choice=1, part=0, kind="text"),
        PartDelta(choice=1, part=0, text="b"),
        PartEnd(choice=1, part=0),
        CompletePart(choice=2, part=0, value=Text(text="c")),
        ChoiceEnd(choice=0, reason="length"),
        ChoiceEnd(choice=1, reason="stop"),
        ChoiceEnd(choice=2, reason="content_filter"),
        ReplyEnd(),
    ]
    seen: dict[int, list[Any]] = {}
    for one in chunks(events):
        (choice,) = one["choices"]
        seen.setdefault(choice["index"], []).append((choice["delta"], choice["finish_reason"]))
    for told in seen.values():
        assert "role" in told[0][0]
        assert sum("role" in delta for delta, _ in told) == 1
        assert [finish is None for _, finish in told] == [True] * (len(told) - 1) + [False]
    assert seen[2][1][0] == {"content": "c"}


CITATION = Citation(start=0, end=1, url="u", title="t")


def test_words_of_other_vendors_stay_out() -> None:
    flat = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    events: list[Event] = [
        ReplyStart(id="r1", model="m", created_s=17, extra={"container": 1, "usage": {"zz": 1}}),
        PartStart(choice=0, part=0, kind="text"),
        PartDelta(choice=0, part=0, text="a", extra={"citations": [1]}),
        PartDelta(choice=0, part=0, text="", citations=(CITATION,), extra={"annotations": [flat]}),
        PartEnd(choice=0, part=0),
        PartStart(choice=0, part=1, kind="tool_call", id="c", name="f", extra={"caller": 1}),
        PartEnd(choice=0, part=1),
        ChoiceEnd(choice=0, reason="tool_calls", extra={"stop_details": 1, "message": {"zz": 1}}),
        ReplyUsage(usage=USAGE, extra={"usage": {"zz": 1}, "zz": 1}),
        ReplyEnd(),
    ]
    call = read(stream=True, stream_options={"include_usage": True})
    told = json.dumps(chunks(events, call))
    assert not any(word in told for word in ("container", "citations", "caller", "stop_", "zz"))
    nested = {"start_index": 0, "end_index": 1, "title": "t", "url": "u"}
    assert {"annotations": [{"type": "url_citation", "url_citation": nested}]} in deltas(events)
    reply = msgspec.structs.replace(collected("anthropic", events), created_s=17)
    told = CLIENT.write_reply(reply, call).decode()
    assert not any(word in told for word in ("container", "citations", "caller", "stop_", "zz"))


def test_an_error_is_the_last_word() -> None:
    failure = Failure(kind="overloaded", message="busy")
    stream = stream_bytes(read(), [BEGAN, ReplyFailure(failure), *HELLO])
    assert b"[DONE]" not in stream
    assert chunks_of(stream)[-1] == {
        "error": {"message": "busy", "type": "server_error", "param": None, "code": "overloaded"}
    }
    writer = CLIENT.stream_writer(read())
    assert writer.keep_alive() == b": keep-alive\n\n"
    writer.write(ReplyEnd())
    assert writer.keep_alive() == b""


def test_line_ends_that_some_clients_cut_at() -> None:
    events = list(HELLO)
    events[2] = PartDelta(choice=0, part=0, text="a\u2028b\u0085c\nd")
    stream = stream_bytes(read(), events).decode()
    assert "\u2028" not in stream and "\u0085" not in stream
    assert json.loads(stream.split("\n\n")[1][6:])["choices"][0]["delta"]["content"] == (
        "a\u2028b\u0085c\nd"
    )


def test_a_reader_reads_what_the_writer_wrote() -> None:
    logprobs = [{"token": "H", "logprob": -0.5, "bytes": [72], "top_logprobs": []}]
    reply = ChatReply(
        dialect="openai-chat",
        id="r1",
        model="m",
        created_s=17,
        choices=(
            Choice(
                index=0,
                parts=(
                    Thinking(text="plain"),
                    Text(text="Hello", extra={"annotations": [{"type": "url_citation"}]}),
                    ToolCall(id="c1", name="f", arguments="{}", signature=Signature("gemini", "G")),
                    ToolCall(id="c2", name="g", arguments=""),
                ),
                finish="tool_calls",
                logprobs=logprobs,
                extra={"native_finish_reason": "x", "message": {"executed_tools": [1]}},
            ),
            Choice(
                index=1,
                parts=(
                    Refusal("No."),
                    Media(kind="image", mime="image/png", data="AAAA"),
                    Media(
                        kind="audio",
                        data="AA==",
                        extra={"id": "a", "expires_at": 1, "transcript": "t"},
                    ),
                ),
                finish="stop",
                stop_sequence="END",
            ),
        ),
        usage=USAGE,
        service_tier="flex",
        extra={"system_fingerprint": "fp", "usage": {"queue_time": 0.5}},
    )
    call = read(stream=True, n=2, stream_options={"include_usage": True})
    stream = stream_bytes(call, list(replayed(reply)))
    again = collected("openai-chat", read_stream(GENERIC.stream_reader(call), stream))
    assert again == reply
