"""Citations that a client's dialect has no form for are named in a header."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import completion, reply
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
        made = gateway(settings, [])
        try:
            found = await ask(made.app, {**HI, "max_tokens": 9}, path=path)
        finally:
            made.close()
    assert found.status == 200, found.body
    assert found.headers.get("x-headrace-dropped") == lost
