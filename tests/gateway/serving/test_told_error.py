"""Errors of a provider that speaks as the client does are told with its own status and body."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, reply
from tests.gateway.upstream.scripted import served

KEY = "sk-provider/0123456789-abcdef"
OPENAIS: dict[str, Any] = {
    "error": {
        "message": "no such picture", "type": "image_parse_error", "param": "messages",
        "code": "invalid_image", "inner": {"a": [1, "é"]},
    },
    "details": {"x": None},
}  # fmt: skip
ANTHROPICS: dict[str, Any] = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "messages: no", "details": {"x": 1}},
    "request_id": "req_theirs",
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5},
    "/v1/embeddings": {"input": "Hi"},
}


def says(status: int, body: dict[str, Any] | bytes) -> Answer:
    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        if isinstance(body, dict):
            writer.write(reply(status, body))
        else:
            writer.write(b"HTTP/1.1 %d No\r\ncontent-type: application/json\r\n"
                         b"content-length: %d\r\n\r\n" % (status, len(body)) + body)  # fmt: skip

    return answer


async def told(
    path: str, dialect: str, status: int, body: dict[str, Any] | bytes, *, stream: bool = False
) -> tuple[Told, Entry]:
    entries: list[Entry] = []
    base = "" if dialect == "anthropic" else "/v1"
    async with served(says(status, body)) as provider:
        config = {
            "providers": {
                "a": {"base_url": f"{provider.origin}{base}", "dialect": dialect, "api_key": KEY}
            },
            "models": {"m": ["a/x"]},
            "retries": {"attempts": 1},
        }
        asked = {"model": "m", **BODIES[path], **({"stream": True} if stream else {})}
        got = await ask(gateway(config, entries).app, asked, path=path)
    return got, entries[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 409, 413, 415, 422, 424, 451])
async def test_a_status_and_fields_of_the_clients_dialect_are_told(
    status: int, stream: bool
) -> None:
    got, entry = await told("/v1/chat/completions", "openai-chat", status, OPENAIS, stream=stream)
    assert got.status == status and got.json == OPENAIS
    assert (entry.outcome, entry.status) == ("refused", status)


async def test_in_anthropics_dialect_and_of_embeddings() -> None:
    got, _ = await told("/v1/messages", "anthropic", 422, ANTHROPICS)
    assert got.status == 422 and got.json == {**ANTHROPICS, "request_id": "req-1"}, "ours"
    got, _ = await told("/v1/embeddings", "openai-chat", 422, OPENAIS)
    assert got.status == 422 and got.json == OPENAIS


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_words_that_are_also_in_our_own_headers_stay(path: str) -> None:
    said = {"error": {"message": "content-type must be application/json", "type": "x"}}
    got, _ = await told(path, "openai-chat", 415, said)
    assert got.json == said


async def test_in_another_dialect_it_is_translated() -> None:
    got, entry = await told("/v1/messages", "openai-chat", 422, OPENAIS)
    assert got.status == entry.status == 400
    assert got.json["error"] == {"type": "invalid_request_error", "message": "no such picture"}


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, 500, 503])
async def test_what_is_no_fault_of_the_client_is_told_in_our_words(status: int) -> None:
    got, _ = await told("/v1/chat/completions", "openai-chat", status, OPENAIS)
    assert "inner" not in got.json["error"] and "no target answered" in got.json["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [b"not found", b'{"detail": "no"}', b'{"error": "no"}', b'{"error": {"message": "no"}}',
     b"[" * 2000, b'{"error": {"message": "no", "type": "x", "y": "' + b"z" * 70_000 + b'"}}'],
)  # fmt: skip
async def test_what_clients_cannot_read_is_written_anew(body: bytes) -> None:
    got, _ = await told("/v1/chat/completions", "openai-chat", 422, body)
    assert got.status == 400 and got.json["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("spelled", [KEY, KEY.replace("/", "\\/"), KEY.replace("s", "\\u0073")])
async def test_a_key_in_any_field_and_spelling_is_taken_out(spelled: str) -> None:
    body = json.dumps({**OPENAIS, "asked": {"KEY": "Bearer KEY"}}).replace("KEY", spelled).encode()
    got, _ = await told("/v1/chat/completions", "openai-chat", 422, body)
    assert got.status == 422 and "0123456789-abcdef" not in got.body.decode()
    assert "[secret]" in got.body.decode() and got.json["error"] == OPENAIS["error"]
