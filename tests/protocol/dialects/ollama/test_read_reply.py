"""What an Ollama server answers, whole and as a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.ollama import PROVIDER, OllamaStreamReader
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import ChoiceEnd, PartStart, ReplyEnd, ReplyFailure
from headrace.protocol.neutral.part import Media, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.ollama.samples import call
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream

HEAD = {"model": "qwen3", "created_at": "2025-07-07T20:22:19.184789123-07:00"}
TIMES = {
    "total_duration": 182242375,
    "load_duration": 41295167,
    "prompt_eval_duration": 24573166,
    "eval_duration": 115959084,
}
COUNTS = {"prompt_eval_count": 169, "eval_count": 15}
PNG = "iVBORw0KGgoAAAANSUhEUg=="


def chunk(done: bool = False, **message: Any) -> dict[str, Any]:
    return HEAD | {"message": {"role": "assistant", "content": "", **message}, "done": done}


def last(reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    told = {} if reason is None else {"done_reason": reason}
    return chunk(done=True) | told | TIMES | COUNTS | more


def lines(*chunks: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in chunks)


def function(name: str, **arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


def reader() -> OllamaStreamReader:
    return OllamaStreamReader()


def read(**message: Any) -> ChatReply:
    whole = chunk(done=True, **message) | {"done_reason": "stop"} | TIMES | COUNTS
    return PROVIDER.read_reply(json.dumps(whole).encode())


def test_a_whole_answer() -> None:
    reply = read(content="Hello", thinking="Hm.", images=[PNG])
    choice = reply.choices[0]
    assert choice.parts == (
        Thinking(text="Hm."),
        Text(text="Hello"),
        Media(kind="image", mime="image/png", data=PNG),
    )
    assert choice.finish == "stop"
    assert reply.usage == TokenUsage(input_tokens=169, output_tokens=15)
    assert reply.created_s == 1751944939
    assert (reply.model, reply.dialect) == ("qwen3", "ollama")
    assert choice.extra == {"ollama": TIMES}


def test_tool_calls_end_with_a_reason_of_their_own() -> None:
    reply = read(tool_calls=[function("f", city="Oslo"), {"id": "c9", **function("g")}])
    assert reply.choices[0].parts == (
        ToolCall(id="call_0_0", name="f", arguments='{"city": "Oslo"}'),
        ToolCall(id="c9", name="g", arguments="{}"),
    )
    assert reply.choices[0].finish == "tool_calls"


@pytest.mark.parametrize(
    ("told", "wanted"), [("{}", "{}"), ("null", "{}"), ('"{\\"a\\":1}"', '{"a":1}'), ("[1]", "[1]")]
)
def test_arguments_may_be_text(told: str, wanted: str) -> None:
    raw = json.dumps(chunk(True, tool_calls=[function("f", a="HERE")])).encode()
    reply = PROVIDER.read_reply(raw.replace(b'{"a": "HERE"}', told.encode()))
    part = reply.choices[0].parts[0]
    assert isinstance(part, ToolCall)
    assert part.arguments == wanted


@pytest.mark.parametrize(
    ("reason", "finish", "extra"),
    [
        ("stop", "stop", None),
        ("length", "length", None),
        (None, "stop", None),
        ("load", "stop", "load"),
        ("unload", "stop", "unload"),
        ("new", "stop", "new"),
    ],
)
def test_reasons(reason: str | None, finish: str, extra: str | None) -> None:
    reply = PROVIDER.read_reply(json.dumps(last(reason)).encode())
    assert reply.choices[0].finish == finish
    assert reply.choices[0].extra["ollama"].get("done_reason") == extra
    events = read_stream(reader(), lines(last(reason)))
    assert collected("ollama", events) == reply


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({}, None),
        ({"eval_count": 3}, TokenUsage(output_tokens=3)),
        ({"prompt_eval_count": 3}, TokenUsage(input_tokens=3)),
        ({"prompt_eval_count": -1, "eval_count": "3"}, None),
        ({"prompt_eval_count": True, "eval_count": 1.5}, None),
        ({"prompt_eval_count": 10**30, "eval_count": None}, None),
    ],
)
def test_usage(counts: dict[str, Any], usage: TokenUsage | None) -> None:
    whole = chunk(done=True, content="x") | counts
    assert PROVIDER.read_reply(json.dumps(whole).encode()).usage == usage


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"null",
        b'{"done":tr',
        b"\xff",
        b"{}",
        b'{"done":false}',
        b'{"error":"model not found"}',
        b'{"done":true,"message":"text"}',
        b'{"done":true,"message":{"content":5}}',
        b'{"done":true,"message":{"tool_calls":[{}]}}',
        b'{"done":true,"message":{"tool_calls":[{"function":{"name":""}}]}}',
        b'{"done":true,"message":{"tool_calls":[{"function":{"name":"f","arguments":"\\ud800"}}]}}',
        b'{"done":true,"model":7}',
        b'{"done":true,"logprobs":[1]}',
        b'{"done":true,"x":' + b"[" * 10**5 + b"]" * 10**5 + b"}",
    ],
    ids=lambda raw: raw[:60].decode(errors="replace"),
)
def test_damage_is_told_and_nothing_else_raised(raw: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(raw)
    events = read_stream(reader(), raw + b"\n")
    assert isinstance(events[-1], ReplyFailure)
    assert_grammar(events)


def test_a_stream_at_every_cut() -> None:
    stream = lines(
        chunk(thinking="Hm"),
        chunk(thinking=" 2\u20282"),
        chunk(content="Grüße "),
        chunk(content="🜁"),
        chunk(tool_calls=[function("f", city="Tromsø"), function("g")]),
        chunk(),
        chunk(tool_calls=[function("f", city="Bodø")]),
        chunk(images=[PNG]),
        last(),
    )
    events = read_at_every_cut(reader, stream)
    assert_grammar(events)
    reply = collected("ollama", events)
    assert reply.choices[0].parts == (
        Thinking(text="Hm 2\u20282"),
        Text(text="Grüße 🜁"),
        ToolCall(id="call_0_0", name="f", arguments='{"city": "Tromsø"}'),
        ToolCall(id="call_0_1", name="g", arguments="{}"),
        ToolCall(id="call_0_2", name="f", arguments='{"city": "Bodø"}'),
        Media(kind="image", mime="image/png", data=PNG),
    )
    assert reply.choices[0].finish == "tool_calls"
    assert reply.usage == TokenUsage(input_tokens=169, output_tokens=15)
    assert reply.choices[0].extra == {"ollama": TIMES}


def test_a_stream_and_its_whole_say_the_same() -> None:
    logprobs = [{"token": "Hel", "logprob": -0.1, "bytes": [72], "top_logprobs": []}]
    cloud = {"remote_model": "gpt-oss:120b", "remote_host": "https://ollama.com:443"}
    streamed = lines(
        chunk(thinking="Hm.") | cloud,
        chunk(content="Hel") | {"logprobs": logprobs},
        chunk(content="lo") | {"logprobs": logprobs},
        chunk(tool_calls=[function("f")]),
        last("length", context=[1, 2]) | cloud,
    )
    message = {"content": "Hello", "thinking": "Hm.", "tool_calls": [function("f")]}
    whole = last("length", context=[1, 2], logprobs=logprobs * 2) | cloud
    whole["message"] = message
    reply = PROVIDER.read_reply(json.dumps(whole).encode())
    assert collected("ollama", read_at_every_cut(reader, streamed)) == reply
    assert reply.extra == {"ollama": cloud}
    assert reply.choices[0].finish == "length"
    assert reply.choices[0].logprobs == logprobs * 2


def test_log_probabilities_without_text_come_with_the_next_piece() -> None:
    one = {"token": "x", "logprob": -1.0}
    events = read_stream(
        reader(),
        lines(
            chunk() | {"logprobs": [one]},
            chunk(content="a"),
            chunk() | {"logprobs": [one, one]},
            last(),
        ),
    )
    assert_grammar(events)
    assert collected("ollama", events).choices[0].logprobs == [one] * 3


def test_an_error_in_the_middle_ends_the_stream() -> None:
    stream = lines(chunk(content="a"), {"error": "an error was encountered"}, last())
    events = read_at_every_cut(reader, stream)
    assert_grammar(events)
    assert isinstance(events[-1], ReplyFailure)
    assert events[-1].failure.kind == "server"
    assert events[-1].failure.message == "an error was encountered"
    assert events[-1].failure.status is None


def test_a_stream_that_is_cut_off_failed() -> None:
    events = read_at_every_cut(reader, lines(chunk(content="a"))[:-30])
    assert isinstance(events[-1], ReplyFailure)
    events = read_at_every_cut(reader, lines(chunk(content="a")))
    assert_grammar(events)
    assert isinstance(events[-1], ReplyFailure)
    assert events[-1].failure.kind == "network"
    assert isinstance(read_stream(reader())[-1], ReplyFailure)


def test_the_last_line_needs_no_end_and_nothing_is_read_after_it() -> None:
    stream = lines(chunk(content="a"), last())
    whole = read_stream(reader(), stream)
    assert isinstance(whole[-1], ReplyEnd)
    assert read_at_every_cut(reader, stream[:-1]) == whole
    assert read_at_every_cut(reader, stream + b"garbage\n" + stream) == whole
    assert read_at_every_cut(reader, stream.replace(b"\n", b"\r\n\n  \n")) == whole


def test_a_line_without_end_is_not_held() -> None:
    stream = lines(chunk(content="a")) + b"x" * 2000
    events = read_at_every_cut(lambda: OllamaStreamReader(1000), stream)
    assert isinstance(events[-1], ReplyFailure)
    assert events[-1].failure.kind == "damaged"
    assert any(isinstance(one, PartStart) for one in events)


def test_an_answer_without_content_still_ends() -> None:
    events = read_at_every_cut(reader, lines(HEAD | {"done": True}))
    assert_grammar(events)
    assert [type(one) for one in events[1:]] == [ChoiceEnd, ReplyEnd]


def test_the_provider_makes_new_readers() -> None:
    first, second = (PROVIDER.stream_reader(call()) for _ in range(2))
    assert read_stream(first, lines(last())) == read_stream(second, lines(last()))
