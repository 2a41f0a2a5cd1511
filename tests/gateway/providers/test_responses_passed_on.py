"""Requests of the Responses API at OpenAI itself, which speaks it beside chat."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.clients.over_socket import listening
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import END, STREAM_HEAD, answers, framed, reply
from tests.gateway.upstream.scripted import Scripted, served

RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 7, "status": "completed", "model": "m",
    "output": [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}
    ],
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "x_new": [1.50],
    "usage": {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15,
              "input_tokens_details": {"cached_tokens": 0},
              "output_tokens_details": {"reasoning_tokens": 0}},
}  # fmt: skip


def stream() -> bytes:
    begun = {**RESPONSE, "status": "in_progress", "output": [], "usage": None}
    item = RESPONSE["output"][0]
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", "item_id": "msg_1", "output_index": 0,
         "content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
         "content_index": 0, "delta": "Hello"},
        {"type": "response.output_text.done", "item_id": "msg_1", "output_index": 0,
         "content_index": 0, "text": "Hello"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": RESPONSE},
    ]  # fmt: skip
    return b"".join(
        f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': at})}\n\n".encode()
        for at, one in enumerate(events)
    )


async def both(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    if not request.startswith(b"POST /v1/responses "):
        await answers("from chat")(number, request, writer)
    elif b'"stream": true' in request or b'"stream":true' in request:
        writer.write(STREAM_HEAD + framed(stream()) + END)
    else:
        writer.write(reply(200, RESPONSE))


def settings(provider: Scripted, **given: Any) -> dict[str, Any]:
    price = {"input": 1.0, "output": 2.0}
    return {
        "providers": {"openai": {"base_url": f"{provider.origin}/v1", "api_key": "k", **given}},
        "models": {"m1": {"targets": [{"model": "openai/m", "price": price}]}},
    }


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_body_goes_through_with_its_state(streamed: bool) -> None:
    entries: list[Entry] = []
    async with served(both) as provider:
        built = gateway(settings(provider, responses=True), entries)
        flag = b', "stream": true' if streamed else b""
        raw = (
            b'{"model":"m1","previous_response_id":"resp_0", "input":"Hi","x": 1.0e2' + flag + b"}"
        )
        told = await ask(built.app, raw, path="/v1/responses")
        built.close()
        head, _, body = provider.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/responses HTTP/1.1")
    assert body == raw.replace(b'"m1"', b'"m"')
    assert told.body == stream() if streamed else told.json == RESPONSE
    assert entries[0].cost_nusd == 18_000 and entries[0].usage_from == "provider"


async def test_servers_at_other_addresses_are_asked_as_a_chat() -> None:
    async with served(both) as provider:
        built = gateway(settings(provider), [])
        told = await ask(built.app, {"model": "m1", "input": "Hi"}, path="/v1/responses")
        state = {"model": "m1", "input": "Hi", "previous_response_id": "resp_0"}
        refused = await ask(built.app, state, path="/v1/responses")
        built.close()
        assert provider.requests[0].startswith(b"POST /v1/chat/completions ")
    assert told.json["output"][-1]["content"][0]["text"] == "from chat"
    assert refused.status == 400
    known = gateway(
        {"providers": {"openai": "key", "groq": "key"}, "models": {"m": ["openai/m"]}}, []
    )
    known.close()
    assert "openai-responses" in known.providers["openai"].passes
    assert "openai-responses" not in known.providers["groq"].passes


async def test_the_openai_package() -> None:
    async with served(both) as provider:
        given = {"providers": {"a": {"base_url": f"{provider.origin}/v1", "responses": True}}}
        async with listening(both, **given) as gate:
            client = openai.AsyncOpenAI(base_url=f"{gate.url}/v1", api_key="none")
            whole = await client.responses.create(model="chat", input="Hi")
            assert whole.output_text == "Hello"
            streamed = await client.responses.create(model="chat", input="Hi", stream=True)
            kinds = [one.type async for one in streamed]
            assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
            await client.close()
            assert [one.cost_nusd for one in gate.entries] == [18_000] * 2
