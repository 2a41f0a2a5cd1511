"""Streams of servers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from headrace.protocol.dialects.openai_chat import PRESETS, OpenAIChatProvider
from headrace.protocol.dialects.openai_chat.reply.stream_reader import ChatStreamReader
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import Collector, collected
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    PartDelta,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
    has_content,
)
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
)
from headrace.protocol.neutral.reply import ChatReply
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.openai_chat.samples import (
    call_delta,
    delta,
    read,
    read_body,
    reply_body,
    sse,
)
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream


def new_reader(variant: str = "generic", choices: int = 1) -> ChatStreamReader:
    """A reader of one answer."""
    return OpenAIChatProvider(PRESETS[variant]).stream_reader(read(stream=True, n=choices))


def events_of(stream: bytes, variant: str = "generic", choices: int = 1) -> list[Event]:
    """Events, after every cut was tried and the grammar held."""
    events = read_at_every_cut(lambda: new_reader(variant, choices), stream)
    assert_grammar(events)
    return events


def reply_of(stream: bytes, variant: str = "generic", choices: int = 1) -> ChatReply:
    """The answer of a stream that ends well."""
    events = events_of(stream, variant, choices)
    assert isinstance(events[-1], ReplyEnd), events[-1]
    return collected("openai-chat", events)


def parts_of(*chunks: dict[str, Any]) -> tuple[Part, ...]:
    """Parts of the first choice."""
    return reply_of(sse(*chunks)).choices[0].parts


def failure_of(stream: bytes, variant: str = "generic") -> tuple[str, str]:
    """Kind and message of the failure that ends a stream."""
    last = events_of(stream, variant)[-1]
    assert isinstance(last, ReplyFailure)
    return last.failure.kind, last.failure.message


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
COUNTED = TokenUsage(input_tokens=3, output_tokens=2)


def test_a_plain_answer() -> None:
    stream = sse(
        delta(role="assistant", content="", top_system_fingerprint="fp"),
        delta(content="Grü"),
        delta(content="ße 🙂"),
        delta("stop"),
        {**delta(), "choices": [], "usage": USAGE, "service_tier": "default"},
    )
    events = events_of(stream)
    assert events[0] == ReplyStart(
        id="r1", model="m", created_s=17, extra={"system_fingerprint": "fp"}, dialect="openai-chat"
    )
    assert not has_content(events[1])
    assert [one.text for one in events if isinstance(one, PartDelta)] == ["Grü", "ße 🙂"]
    assert events[-3:] == [
        ChoiceEnd(choice=0, reason="stop"),
        ReplyUsage(usage=COUNTED, service_tier="default"),
        ReplyEnd(),
    ]


@pytest.mark.parametrize(
    "chunks",
    [
        [delta(content="a"), delta("stop", top_usage=USAGE)],
        [delta(content="a", top_usage=USAGE), delta("stop", top_usage=None)],
        [
            delta(content="a", top_usage={"prompt_tokens": 3, "completion_tokens": 1}),
            delta("stop", top_usage=USAGE),
        ],
        [delta(content="a"), delta("stop", top_x_groq={"id": "req", "usage": USAGE})],
        [delta(content="a"), delta("stop"), {"usage": USAGE}],
        [
            delta(content="a"),
            delta("stop", top_usage=USAGE),
            {**delta(), "choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}},
        ],
    ],
)
def test_usage_wherever_it_stands_is_told_once(chunks: list[dict[str, Any]]) -> None:
    events = events_of(sse(*chunks))
    assert [one.usage for one in events if isinstance(one, ReplyUsage)] == [COUNTED]


def test_azures_first_chunk_is_no_content() -> None:
    first = {
        "choices": [],
        "created": 0,
        "id": "",
        "model": "",
        "object": "",
        "prompt_filter_results": [{"prompt_index": 0}],
    }
    reader = new_reader("azure")
    assert reader.feed(sse(first, done=False)) == []
    events = events_of(sse(first, delta(content="a"), delta("stop")), "azure")
    assert events[0] == ReplyStart(
        id="r1",
        model="m",
        created_s=17,
        extra={"prompt_filter_results": [{"prompt_index": 0}]},
        dialect="openai-chat",
    )


def test_thoughts_of_both_names_then_text() -> None:
    for field in ("reasoning_content", "reasoning"):
        assert parts_of(
            delta(content=None, **{field: "a"}),
            delta(content="", **{field: "b"}),
            delta(content="c"),
            delta("stop"),
        ) == (Thinking(text="ab"), Text(text="c"))


def detail(kind: str, **fields: Any) -> dict[str, Any]:
    """A chunk with one detail of OpenRouter."""
    one = {"type": f"reasoning.{kind}", **fields}
    thought = fields.get("text") or fields.get("summary")
    return delta(content="", reasoning=thought, reasoning_details=[one])


def test_details_with_signatures() -> None:
    claude = {"format": "anthropic-claude-v1", "index": 0}
    assert parts_of(
        detail("text", text="a", **claude),
        detail("text", text="b", **claude),
        detail("text", signature="S", **claude),
        detail("encrypted", data="R", format="anthropic-claude-v1", index=1),
        detail("summary", summary="s", format="openai-responses-v1", index=2),
        detail("summary", summary="t", format="openai-responses-v1", index=2),
        detail("encrypted", data="E", format="openai-responses-v1", index=2, id="rs"),
        delta(content="x"),
        delta("stop"),
    ) == (
        Thinking(text="ab", signature=Signature("anthropic", "S")),
        Thinking(text="", signature=Signature("anthropic", "R"), redacted=True),
        Thinking(text="st", summary=True),
        Thinking(text="", signature=Signature("openai", "E"), redacted=True, id="rs"),
        Text(text="x"),
    )


def piece(
    index: int | None, number: str | None = None, name: str | None = None, args: Any = None
) -> dict[str, Any]:
    """A fragment of a tool call; None leaves a field out."""
    function = {k: v for k, v in (("name", name), ("arguments", args)) if v is not None}
    fields = {"index": index, "id": number}
    return {**{k: v for k, v in fields.items() if v is not None}, "function": function}


def test_half_of_a_character_does_not_end_the_answer() -> None:
    first = json.dumps(delta(content="HALF")).replace("HALF", "a\\ud83d")
    reply = reply_of(sse(f"data: {first}\n\n", delta(content="b"), delta("stop")))
    assert reply.choices[0].parts == (Text(text="a\ufffdb"),)


def test_content_in_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert parts_of(delta(content=parts), delta("stop")) == (Text(text="ab"),)


def test_a_custom_tool_refusal_pictures_and_sound() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    custom = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": ""}}
    assert parts_of(
        delta(refusal="No"),
        delta(refusal="."),
        delta(images=[picture]),
        delta(tool_calls=[custom]),
        delta(tool_calls=[{"index": 0, "custom": {"input": "select"}}]),
        delta(audio={"id": "a", "transcript": "be"}),
        delta(audio={"data": "AA=="}),
        delta(audio={"data": "AQ==", "transcript": "ep"}),
        delta(audio={"expires_at": 9}),
        delta("stop"),
    ) == (
        Refusal("No."),
        Media(kind="image", mime="image/png", data="AAAA"),
        Opaque(
            "openai-chat",
            {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select"}},
        ),
        Media(kind="audio", data="AAE=", extra={"id": "a", "transcript": "beep", "expires_at": 9}),
    )


def test_annotations_belong_to_the_text() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "u"}}
    assert parts_of(
        delta(content="a"), delta(annotations=[note]), delta(annotations=[note]), delta("stop")
    ) == (
        Text(
            text="a",
            citations=(Citation(url="u"), Citation(url="u")),
            extra={"annotations": [note, note]},
        ),
    )


def test_several_choices_at_once() -> None:
    stream = sse(
        delta(content="A", index=0),
        delta(content="B", index=1),
        delta("stop", index=0),
        delta(content="b", index=1),
        delta("length", index=1),
    )
    reply = reply_of(stream, choices=2)
    assert [(one.index, one.parts, one.finish) for one in reply.choices] == [
        (0, (Text(text="A"),), "stop"),
        (1, (Text(text="Bb"),), "length"),
    ]


def test_log_probabilities_go_with_their_text() -> None:
    def one(token: str) -> dict[str, Any]:
        return {"token": token, "logprob": -1.0}

    chunks = [delta(content="a"), delta(content="b"), delta("stop")]
    for chunk, token in zip(chunks, "abc", strict=True):
        chunk["choices"][0]["logprobs"] = {"content": [one(token)], "refusal": None}
    choice = reply_of(sse(*chunks)).choices[0]
    assert choice.logprobs == [one("a"), one("b"), one("c")]


@pytest.mark.parametrize(
    "chunks",
    [
        [delta(content="a"), delta("stop"), delta("stop")],
        [delta(content="a"), delta("", content="b"), delta("stop")],
        [delta("stop", content="a"), delta(content="b")],
        [delta(content="a")],
        [delta(content="a"), delta("")],
    ],
)
def test_the_end_is_told_once_and_last(chunks: list[dict[str, Any]]) -> None:
    events = events_of(sse(*chunks))
    assert events[-2:] == [ChoiceEnd(choice=0, reason="stop"), ReplyEnd()]


def test_what_else_a_choice_says() -> None:
    last = delta("stop", executed_tools=[{"index": 1}])
    last["choices"][0] |= {"stop_reason": "END", "native_finish_reason": "x"}
    first = delta(content="a", executed_tools=[{"index": 0}], channel="final")
    choice = reply_of(sse(first, last)).choices[0]
    assert choice.stop_sequence == "END"
    assert choice.extra == {
        "native_finish_reason": "x",
        "message": {"executed_tools": [{"index": 0}, {"index": 1}], "channel": "final"},
    }


def test_frames_of_all_kinds() -> None:
    chunk = json.dumps(delta(content="a"))
    first, second = chunk[:20], chunk[20:]
    # JSON may be cut between its tokens into several data lines.
    at = chunk.index(" ", 3)
    first, second = chunk[:at], chunk[at:]
    stream = (
        ": OPENROUTER PROCESSING\r\n\r\n"
        f"event: message\r\nid: 1\r\ndata: {first}\r\ndata:{second}\r\n\r\n"
        'data: {"type": "ping"}\r\n\r\n'
        "data:\r\n\r\n"
        f"data:{json.dumps(delta('stop'))}\r\n\r\ndata: [DONE]\r\n\r\n"
        "data: nonsense after the end\r\n\r\n"
    )
    reply = reply_of(stream.encode())
    assert reply.choices[0].parts == (Text(text="a"),)
    assert reply.extra == {}


def test_an_end_without_its_mark() -> None:
    whole = sse(delta(content="a"), delta("stop"), done=False)
    assert isinstance(events_of(whole, "generic")[-1], ReplyEnd)
    assert failure_of(whole, "openai")[0] == "network"
    # The last empty line alone is missing.
    assert isinstance(events_of(whole + b"data: [DONE]", "openai")[-1], ReplyEnd)
    for stream in (b"", b"\n", sse(delta(content="a"), done=False), whole[:-30]):
        assert failure_of(stream)[0] == "network"
    events = events_of(whole, choices=2)
    assert isinstance(events[-1], ReplyFailure)


def test_a_cut_stream_tells_the_usage_it_had() -> None:
    events = events_of(sse(delta(content="a", top_usage=USAGE), done=False))
    assert isinstance(events[-1], ReplyFailure)
    assert events[-2] == ReplyUsage(usage=COUNTED)
    collector = Collector("openai-chat")
    for event in events:
        collector.take(event)
    assert collector.reply().choices[0].parts == (Text(text="a"),)


@pytest.mark.parametrize(
    ("chunk", "kind", "message"),
    [
        ({"error": {"message": "m", "code": 429}}, "rate_limit", "m"),
        ({"error": {"message": "m", "code": "context_length_exceeded"}}, "context_length", "m"),
        ({"error": "m"}, "server", "m"),
        ({"error": {"message": "m", "type": "BadRequestError", "code": 400}}, "bad_request", "m"),
        ({"object": "error", "message": "m", "code": 503}, "overloaded", "m"),
        ({"detail": "m"}, "server", "m"),
        ('event: error\ndata: {"message": "m", "code": 402}\n\n', "payment", "m"),
        ('event: error\ndata: "m"\n\n', "server", "m"),
        ({**delta(), "error": {"message": "m", "code": 502}}, "server", "m"),
        ("data: {\n\n", "damaged", ""),
        ("data: []\n\n", "damaged", ""),
        (delta("error"), "server", ""),
        (delta("insufficient_system_resource"), "overloaded", ""),
        ({"choices": [{"error": {"message": "m", "code": 500}}]}, "server", "m"),
    ],
)
def test_errors_in_the_middle(chunk: dict[str, Any] | str, kind: str, message: str) -> None:
    for before in ([], [delta(content="a")]):
        events = events_of(sse(*before, chunk, delta(content="never")))
        last = events[-1]
        if chunk in (delta("error"), delta("insufficient_system_resource")):
            assert isinstance(last, ReplyFailure) and last.failure.kind == kind
            continue
        assert isinstance(last, ReplyFailure)
        assert last.failure.kind == kind
        assert not message or last.failure.message == message
        assert not any(isinstance(one, PartDelta) and one.text == "never" for one in events)


def test_a_body_instead_of_a_stream() -> None:
    body = reply_body(usage=USAGE)
    raw = json.dumps(body, indent=1).encode()
    events = events_of(b"\n " + raw)
    assert collected("openai-chat", events) == read_body(body)
    error = b'{"error": {"message": "m", "code": 400}}'
    assert failure_of(error) == ("bad_request", "m")
    assert failure_of(raw[:-5])[0] == "damaged"


def test_a_stream_of_nothing() -> None:
    assert failure_of(sse())[0] == "damaged"


def halves(words: str) -> Iterable[str]:
    """Two pieces of a text."""
    return words[: len(words) // 2], words[len(words) // 2 :]


def test_a_stream_says_what_the_whole_reply_says() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    message = {
        "content": "Hello",
        "reasoning_content": "Hm, so.",
        "tool_calls": [call],
        "executed_tools": [{"index": 0}],
    }
    usage = {**USAGE, "cost": 0.5, "queue_time": 0.25}
    body = reply_body(
        message,
        choice={"finish_reason": "tool_calls", "native_finish_reason": "x"},
        usage=usage,
        service_tier="flex",
        provider="P",
    )
    last = delta("tool_calls", executed_tools=[{"index": 0}])
    last["choices"][0]["native_finish_reason"] = "x"
    chunks = [
        delta(role="assistant", content="", top_provider="P"),
        *(delta(reasoning_content=one) for one in halves("Hm, so.")),
        *(delta(content=one) for one in halves("Hello")),
        call_delta(piece(0, "c1", "f", "")),
        *(call_delta(piece(0, args=one)) for one in halves('{"a":1}')),
        last,
        {**delta(), "choices": [], "usage": usage, "service_tier": "flex"},
    ]
    assert reply_of(sse(*chunks)) == read_body(body)


@pytest.mark.long
def test_a_server_cannot_make_us_keep_all() -> None:
    reader = new_reader()
    big = "x" * 2**20
    held = call_delta(piece(0, "c1", "f", ""))
    events = reader.feed(sse(held, done=False))
    for _ in range(80):
        events += reader.feed(sse(delta(content=big), done=False))
    assert isinstance(events[-1], ReplyFailure) and events[-1].failure.kind == "damaged"
    many = sse(*(delta(content="a", index=at) for at in range(1100)))
    last = read_stream(new_reader(), many)[-1]
    assert isinstance(last, ReplyFailure) and last.failure.kind == "damaged"
    calls = sse(*(call_delta(piece(at, f"c{at}", "f", "")) for at in range(1100)))
    last = read_stream(new_reader(), calls)[-1]
    assert isinstance(last, ReplyFailure) and last.failure.kind == "damaged"
