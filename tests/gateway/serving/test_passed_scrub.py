"""A stream that is passed on, without our secrets where the provider speaks for itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.passed_scrub import PassedScrub
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served

KEY = "sk-0123456789abcdef"
HEADERS = (
    ("authorization", f"Bearer {KEY}"),
    ("http-referer", "https://chat.example"),
    ("x-extra-key", "extra/0123+456789=="),
)
SAID = [
    b'data: {"object":"chat.completion","choices":[{"delta":{"content":"an error: %b"}}]}\n\n',
    b'data: {"choices":[{"index":0,"text":"%b"}],"error":null}\r\n\r\n',
    b'data: {"choices": [{"delta":\ndata: {"content":"%b"}}]}\n\n',
    b'event: response.refusal.delta\ndata: {"type":"response.refusal.delta","delta":"%b"}\n\n',
    b'data: {"type":"response.completed","response":{"error":null,"output":["%b"]}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"%b"}}\n\n',
    b'data: {"type":"message_start","message":{"id":"%b"}}\n\n',
    b'{"message":{"role":"assistant","content":"%b"},"done":false}\n',
    b'{"response":"%b","done":false}\n',
]
NOT_SAID = [
    b": sent with %b\n\n",
    b"data: %b\n\n",
    b'event: odd\ndata: {"x":"%b"}\n\n',
    b'data: {"error":"%b"}\n\n',
    b'data: {"error":{"message":"%b"},"choices":[{"delta":{"content":""}}]}\n\n',
    b'data: {"choices":[{"error":{"message":"%b"},"finish_reason":"error"}]}\n\n',
    b'data: {"object":"error","message":"%b","code":401}\n\n',
    b'data: {"choices":[],"message":"%b"}\n\n',
    b'data: {"detail":"%b"}\n\n',
    b'error: {"message":"%b"}\n\n',
    b'event: error\ndata: {"type":"error","code":null,"message":"%b"}\n\n',
    b'event: error\ndata: {"message":{"x":"%b"}}\n\n',
    b'data: {"type":"response.failed","response":{"error":{"message":"%b"}}}\n\n',
    b'data: {"type":"error","error":{"type":"authentication_error","message":"%b"}}\n\n',
    b'{"error":"%b"}\n',
]


@pytest.mark.parametrize("event", SAID)
def test_what_a_model_says_is_left_alone_to_the_byte(event: bytes) -> None:
    for secret in (KEY, f"Bearer {KEY}", "https://chat.example", "extra/0123+456789=="):
        said = event % secret.encode()
        assert PassedScrub(HEADERS).clean(said) == said
        assert PassedScrub(HEADERS).clean(said + NOT_SAID[3] % b"no" + said) == (
            said + NOT_SAID[3] % b"no" + said
        )


@pytest.mark.parametrize("event", NOT_SAID)
def test_what_a_provider_says_itself_is_without_them_however_they_are_spelt(event: bytes) -> None:
    said = SAID[0] % KEY.encode()
    for secret in (
        KEY,
        f"Bearer {KEY}",
        "https://chat.example",
        "https:\\/\\/chat.example",
        "extra/0123+456789==",
        "extra\\/0123+456789==",
        "extra\\u002F0123\\u002b456789\\u003d\\u003D",
    ):
        scrub = PassedScrub(HEADERS)
        assert scrub.clean(event % secret.encode()) == event % b"[secret]"
        # In whole pieces too, and what is said beside it stays.
        if event.endswith(b"\n\n"):
            assert scrub.clean(said + event % secret.encode() + said) == (
                said + event % b"[secret]" + said
            )


def test_fields_beside_an_answer_are_searched() -> None:
    scrub = PassedScrub(HEADERS)
    said = b'data: {"choices":[{"text":"%b"}], "x_groq" : {"error":"%b"} ,"x": 1.50}\n\n'
    key = KEY.encode()
    assert scrub.clean(said % (key, key)) == said % (key, b"[secret]")


def test_all_is_searched_once_the_stream_told_of_an_error() -> None:
    scrub = PassedScrub(HEADERS)
    scrub.has_failed = True
    assert scrub.clean(SAID[0] % KEY.encode()) == SAID[0] % b"[secret]"


def test_an_ordinary_piece_is_not_copied() -> None:
    said = SAID[0] % b"an error: nothing of ours"
    assert PassedScrub(HEADERS).clean(said) is said


async def test_an_answer_says_the_same_as_a_stream_and_whole() -> None:
    said = "For vLLM set the key to token-abc123; there may be an error."
    async with served(answers(said)) as provider:
        settings: dict[str, Any] = {
            "providers": {"a": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat",
                                "api_key": "token-abc123"}},
            "models": {"m": ["a/m"]},
        }  # fmt: skip
        app = gateway(settings, []).app
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        whole = await ask(app, body)
        streamed = await ask(app, {**body, "stream": True})
    assert whole.json["choices"][0]["message"]["content"] == said
    events = [json.loads(one[6:]) for one in streamed.body.decode().split("\n\n")
              if one.startswith("data: {")]  # fmt: skip
    pieces = [one["choices"][0]["delta"].get("content", "") for one in events if one["choices"]]
    assert "".join(pieces).strip() == said


async def test_an_error_in_the_piece_of_the_first_content_is_cleaned_for_all() -> None:
    entries: list[Any] = []

    async def fails(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        events = SAID[0] % b"Hello" + NOT_SAID[3] % KEY.encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        writer.write(head + events)
        writer.close()

    async with served(fails) as provider:
        settings: dict[str, Any] = {
            "providers": {"a": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat",
                                "api_key": KEY}},
            "models": {"m": ["a/m"]},
        }  # fmt: skip
        app = gateway(settings, entries).app
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        told = await ask(app, body)
    assert b"Hello" in told.body and b"[secret]" in told.body
    assert KEY.encode() not in told.body and KEY not in repr(entries)
