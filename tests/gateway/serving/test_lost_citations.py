"""Citations that a client's dialect has no form for are named: in a header and in the ledger."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from headrace.gateway.telemetry.access_log import fields_of
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import (
    DONE,
    END,
    STREAM_HEAD,
    chunk,
    completion,
    framed,
    reply,
)
from tests.gateway.upstream.scripted import served

NOTE = {"type": "url_citation", "url_citation": {"url": "https://example.org/", "title": "t"}}
HI = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "stream": False}
COHERE = {
    "id": "r",
    "message": {
        "role": "assistant",
        "content": [{"type": "text", "text": "Tea."}],
        "citations": [
            {"start": 0, "end": 3, "sources": [{"type": "document", "id": "d", "document": {}}]}
        ],
    },
    "finish_reason": "COMPLETE",
}


def cited() -> dict[str, Any]:
    found = completion("Tea.")
    found["choices"][0]["message"]["annotations"] = [NOTE]
    return found


@pytest.mark.parametrize(
    ("provider", "answer", "path", "lost"),
    [
        ({"dialect": "openai-chat"}, cited(), "/api/chat", "citations (url)"),
        ({"dialect": "openai-chat"}, completion("Tea."), "/api/chat", None),
        ({"dialect": "openai-chat"}, cited(), "/v1/chat/completions", None),
        ({"dialect": "openai-chat"}, cited(), "/v1/messages", None),
        ({"dialect": "cohere"}, COHERE, "/v1/chat/completions", "citations (document)"),
        ({"dialect": "cohere"}, COHERE, "/v1/messages", None),
    ],
)
async def test_citations_without_a_form_are_named(
    provider: dict[str, Any], answer: dict[str, Any], path: str, lost: str | None
) -> None:
    async def told(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, answer))

    async with served(told) as scripted:
        settings = {
            "providers": {"p": {"base_url": str(scripted.origin), "api_key": "k", **provider}},
            "models": {"chat": ["p/m"]},
        }
        entries: list[Entry] = []
        made = gateway(settings, entries)
        try:
            found = await ask(made.app, {**HI, "max_tokens": 9}, path=path)
        finally:
            made.close()
    assert found.status == 200, found.body
    assert found.headers.get("x-headrace-dropped") == lost
    assert entries[0].dropped == (() if lost is None else (lost,))
    assert fields_of(entries[0])["dropped"] == lost


@pytest.mark.parametrize(
    ("path", "lost"),
    [("/api/chat", ("citations (url)",)), ("/v1/messages", ()), ("/v1/chat/completions", ())],
)
async def test_of_a_stream_the_ledger_names_them(path: str, lost: tuple[str, ...]) -> None:
    async def told(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "Tea."})))
        writer.write(framed(chunk({"annotations": [NOTE]}) + chunk({}, "stop") + DONE) + END)

    entries: list[Entry] = []
    async with served(told) as scripted:
        settings = {
            "providers": {"p": {"base_url": str(scripted.origin), "dialect": "openai-chat"}},
            "models": {"chat": ["p/m"]},
        }
        made = gateway(settings, entries)
        try:
            body = {**HI, "max_tokens": 9, "stream": True}
            assert (await ask(made.app, body, path=path)).status == 200
        finally:
            made.close()
    assert entries[0].dropped == lost


async def test_an_answer_from_the_cache_names_them_too() -> None:
    async def told(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, cited()))

    entries: list[Entry] = []
    async with served(told) as scripted:
        settings = {
            "providers": {"p": {"base_url": str(scripted.origin), "dialect": "openai-chat"}},
            "models": {"chat": ["p/m"]},
            "cache": {"enabled": True},
        }
        made = gateway(settings, entries)
        try:
            body = {**HI, "options": {"temperature": 0}}
            found = [await ask(made.app, body, path="/api/chat") for _ in range(2)]
        finally:
            made.close()
    assert [entry.cache for entry in entries] == ["", "hit"]
    assert [answer.headers["x-headrace-dropped"] for answer in found] == ["citations (url)"] * 2
    assert [entry.dropped for entry in entries] == [("citations (url)",)] * 2
