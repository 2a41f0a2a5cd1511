"""Streams passed on whose events come in pieces: clients get whole events, and no secret."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from headrace.protocol.dialects.openai_responses.reply.stream_writer import AnswerSize
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import END, STREAM_HEAD, Answer, chunk, framed
from tests.gateway.upstream.scripted import served

KEY = "sk-0123456789abcdefghij"
SPOKEN = chunk({"content": "half of it"})
START: dict[str, Any] = {
    "id": "msg", "type": "message", "role": "assistant", "model": "m", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 1},
}  # fmt: skip


def named(kind: str, **fields: Any) -> bytes:
    """One of Anthropic's events."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


GREW = named("content_block_delta", index=0, delta={"type": "text_delta", "text": "half of it"})
MESSAGE = (
    named("message_start", message=START)
    + named("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + GREW
)
LINE = b'{"model":"m","message":{"role":"assistant","content":"half of it"},"done":false}\n'
CHAT_ERROR = f'data: {{"error":{{"message":"Incorrect API key: {KEY}. You can","code":"x"}}}}\n\n'
MESSAGE_ERROR = (
    'event: error\ndata: {"type":"error","error":{"type":"authentication_error",'
    f'"message":"invalid x-api-key {KEY}"}}}}\n\n'
)
LINE_ERROR = f'{{"error":"no such key: {KEY}"}}\n'

# Path, dialect, what comes whole, an event that may be cut, and an error with the key.
SPEAK = (
    ("/v1/chat/completions", "openai-chat", SPOKEN, SPOKEN, CHAT_ERROR),
    ("/v1/messages", "anthropic", MESSAGE, GREW, MESSAGE_ERROR),
    ("/api/chat", "ollama", LINE, LINE, LINE_ERROR),
)
NAMES = ("chat", "messages", "ollama")


def settings(origin: Any, dialect: str) -> dict[str, Any]:
    return {
        "providers": {"p": {"base_url": f"{origin}/v1", "dialect": dialect, "api_key": KEY}},
        "models": {"chat": ["p/m"]},
    }


def sends(*pieces: bytes, breaks: bool = False) -> Answer:
    """Each on its own. breaks: the connection ends before the reply does."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for piece in pieces:
            writer.write(framed(piece))
            await writer.drain()
            await asyncio.sleep(0.005)
        if breaks:
            writer.close()
        else:
            writer.write(END)

    return answer


async def heard(path: str, dialect: str, answer: Answer, *, usage: bool) -> tuple[bytes, Entry]:
    """What a client is told. usage: whether it asks for it."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    if path == "/v1/messages":
        body["max_tokens"] = 9
    elif usage:
        body["stream_options"] = {"include_usage": True}
    entries: list[Entry] = []
    async with served(answer) as provider:
        told = await ask(gateway(settings(provider.origin, dialect), entries).app, body, path=path)
    assert told.status == 200 and b"half of it" in told.body
    return told.body, entries[0]


def values(stream: bytes) -> list[Any]:
    """Of each event, which must be JSON."""
    lines = [one.removeprefix(b"data:") for one in stream.splitlines()]
    return [json.loads(one) for one in lines if one and not one.startswith((b"event:", b":"))]


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize(("path", "dialect", "begin", "_event", "error"), SPEAK, ids=NAMES)
async def test_a_key_in_an_error_that_comes_in_pieces_is_not_told(
    path: str, dialect: str, begin: bytes, _event: bytes, error: str, usage: bool
) -> None:
    raw = error.encode()
    key_at = raw.index(KEY.encode())
    for cut in (key_at - 3, key_at + 9, key_at + len(KEY), len(raw) - 1):
        answer = sends(begin, raw[:cut], raw[cut:])
        told, entry = await heard(path, dialect, answer, usage=usage)
        assert told == begin + raw.replace(KEY.encode(), b"[secret]")
        assert entry.outcome == "cut" and KEY not in repr(entry)


async def test_a_key_in_a_comment_or_an_odd_event_is_not_told() -> None:
    odd = [f": key {KEY}\n\n", f'event: odd\ndata: {{"x":"{KEY}"}}\n\n']
    answer = sends(SPOKEN, *(one.encode() for one in odd), b"data: [DONE]\n\n")
    told, _ = await heard("/v1/chat/completions", "openai-chat", answer, usage=True)
    assert KEY.encode() not in told and told.count(b"[secret]") == 2


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_key_in_an_error_without_its_end_is_not_told(path: str) -> None:
    answer = sends(SPOKEN, CHAT_ERROR.rstrip("\n").encode())
    told, _ = await heard(path, "openai-chat", answer, usage=True)
    assert KEY.encode() not in told and told.count(b"[secret]") == 1


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize(("path", "dialect", "begin", "event", "_error"), SPEAK, ids=NAMES)
async def test_a_stream_that_breaks_off_inside_an_event_ends_in_an_error_that_can_be_read(
    path: str, dialect: str, begin: bytes, event: bytes, _error: str, usage: bool, breaks: bool
) -> None:
    answer = sends(begin, event[: len(event) // 2], breaks=breaks)
    told, entry = await heard(path, dialect, answer, usage=usage)
    assert told.startswith(begin) and told.count(b"half of it") == 1
    *_, last = values(told)
    assert "error" in last
    assert entry.outcome == "cut"


async def test_a_last_event_may_lack_its_end() -> None:
    done = b'{"model":"m","message":{"role":"assistant","content":""},"done":true}'
    told, entry = await heard("/api/chat", "ollama", sends(LINE, done[:20], done[20:]), usage=False)
    assert told == LINE + done and entry.outcome == "answered"


async def test_an_event_that_does_not_end_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.gateway.serving.passed_on.WholeEvents.too_long", True)
    told, entry = await heard(
        "/v1/chat/completions", "openai-chat", sends(SPOKEN, b"data: {"), usage=True
    )
    assert values(told)[-1]["error"]["message"] == "an event of the stream does not end"
    assert entry.outcome == "cut"


async def test_an_answer_without_end_is_cut_for_who_is_told_all_of_it_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "headrace.protocol.dialects.openai_responses.reply.stream_writer.AnswerSize", _few
    )
    sent = 0

    async def endless(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(STREAM_HEAD)
        while sent < 100_000:
            sent += 1
            writer.write(framed(SPOKEN))
            await writer.drain()

    entries: list[Entry] = []
    async with served(endless) as provider:
        built = gateway(settings(provider.origin, "openai-chat"), entries)
        body = {"model": "chat", "input": "Hi", "stream": True}
        told = await ask(built.app, body, path="/v1/responses")
        assert provider.requests and built.router.routes["chat"].targets[0].health.in_flight == 0
    last = values(told.body)[-1]
    assert last["type"] == "response.failed"
    assert "10,000 bytes" in last["response"]["error"]["message"]
    assert entries[0].outcome == "cut" and sent < 100_000, "the provider is told to stop"


def _few() -> AnswerSize:
    return AnswerSize(10_000)
