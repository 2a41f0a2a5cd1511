"""Anthropic's models on Vertex AI: the model in the path, the version in the body."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.building.test_providers import made
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import END, STREAM_HEAD, framed, reply
from tests.gateway.upstream.scripted import Scripted, served

MODEL = "claude-sonnet-4-5@20250929"
PLACE = "/v1/projects/acme-1/locations/europe-west1/publishers/anthropic/models"
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn",
    "stop_sequence": None, "usage": {"input_tokens": 12, "output_tokens": 3},
}  # fmt: skip
EVENTS = (
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
     "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)  # fmt: skip


def stream() -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in EVENTS)


async def vertex(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    if b":streamRawPredict" in request:
        writer.write(STREAM_HEAD + framed(stream()) + END)
    else:
        writer.write(reply(200, MESSAGE))


def settings(provider: Scripted) -> dict[str, Any]:
    return {
        "providers": {
            "vertex": {
                "kind": "google-vertex-anthropic", "base_url": str(provider.origin),
                "api_key": "ya29.token",
                "google": {"project": "acme-1", "location": "europe-west1"},
            }
        },
        "models": {"claude": {"targets": [f"vertex/{MODEL}"]}},
    }  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_body_of_anthropic_is_passed_on(streamed: bool) -> None:
    entries: list[Entry] = []
    async with served(vertex) as provider:
        built = gateway(settings(provider), entries)
        raw = (
            b'{"max_tokens": 9, "model":"claude", "x_new": 1.50, "messages": '
            b'[{"role": "user", "content": "Hi"}]' + (b', "stream": true}' if streamed else b"}")
        )
        told = await ask(
            built.app, raw, path="/v1/messages", headers={"anthropic-beta": "context-1m"}
        )
        built.close()
        head, _, body = provider.requests[0].partition(b"\r\n\r\n")
    action = "streamRawPredict" if streamed else "rawPredict"
    assert head.startswith(f"POST {PLACE}/{MODEL}:{action} HTTP/1.1".encode())
    assert b"\r\nanthropic-beta: context-1m" in head
    assert b"\r\nauthorization: Bearer ya29.token" in head
    edited = raw.replace(b' "model":"claude",', b"")
    assert body == edited[:-1] + b',"anthropic_version":"vertex-2023-10-16"}'
    assert told.body == stream() if streamed else told.json == MESSAGE
    assert entries[0].usage is not None and entries[0].usage.output_tokens == 3


@pytest.mark.parametrize("streamed", [False, True])
async def test_other_dialects_are_translated(streamed: bool) -> None:
    entries: list[Entry] = []
    async with served(vertex) as provider:
        built = gateway(settings(provider), entries)
        chat = {"model": "claude", "messages": [{"role": "user", "content": "Hi"}]}
        told = await ask(built.app, {**chat, "stream": streamed})
        built.close()
        head, _, body = provider.requests[0].partition(b"\r\n\r\n")
    assert b"Hello" in told.body
    action = "streamRawPredict" if streamed else "rawPredict"
    assert head.startswith(f"POST {PLACE}/{MODEL}:{action} HTTP/1.1".encode())
    sent = json.loads(body)
    assert sent["anthropic_version"] == "vertex-2023-10-16" and "model" not in sent


@pytest.mark.parametrize("location", ["global", "us", "eu", "europe-west1"])
def test_addresses_are_those_of_anthropics_own_package(location: str) -> None:
    theirs = anthropic.AnthropicVertex(
        project_id="acme-1", region=location, access_token="ya29.token"
    )
    google = {"project": "acme-1", "location": location}
    ours = made("vertex-anthropic", {"google": google, "api_key": "ya29.token"})
    assert ours.base.origin.host == theirs.base_url.host
    path = ours.base.joined(ours.passes["anthropic"].path(MODEL, False))
    assert path == (
        f"/v1/projects/acme-1/locations/{location}/publishers/anthropic/models/{MODEL}:rawPredict"
    )
