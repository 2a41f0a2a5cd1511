"""A gateway that listens on loopback, in front of a provider that can call tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.serving.entry import Entry
from headrace.http.listen import listen, url_of
from headrace.http.server import HttpServer
from tests.gateway.harness import gateway
from tests.gateway.openai_provider import (
    DONE,
    END,
    STREAM_HEAD,
    USAGE,
    Answer,
    body_of,
    chunk,
    completion,
    framed,
    reply,
    usage_chunk,
)
from tests.gateway.upstream.scripted import Scripted, served

TEXT = "It is sunny in Zürich ☀"
ARGUMENTS = '{"city": "Zürich"}'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
READ, WROTE = USAGE["prompt_tokens"], USAGE["completion_tokens"]
PRICE = {"input": 1.0, "output": 2.0}


class Listening(NamedTuple):
    """url: of the gateway, without a path. entries: its ledger."""

    url: str
    provider: Scripted
    entries: list[Entry]


async def talks(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    """Calls the first tool it is offered; tells TEXT once it has a result, or without tools."""
    asked = body_of(request)
    answered = any(one["role"] == "tool" for one in asked["messages"])
    calls = bool(asked.get("tools")) and not answered
    if asked.get("stream"):
        await _streamed(asked, writer, calls=calls)
        return
    told = completion(TEXT, asked["model"])
    if calls:
        told["choices"] = [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "tool_calls": [_call(asked)]},
                "finish_reason": "tool_calls",
            }
        ]
    writer.write(reply(200, told))


def _call(asked: dict[str, Any]) -> dict[str, Any]:
    name = asked["tools"][0]["function"]["name"]
    function = {"name": name, "arguments": ARGUMENTS}
    return {"id": "call_1", "type": "function", "function": function}


async def _streamed(asked: dict[str, Any], writer: asyncio.StreamWriter, *, calls: bool) -> None:
    writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": ""})))
    if calls:
        head = _call(asked)
        head["function"] = {**head["function"], "arguments": ""}
        deltas: list[dict[str, Any]] = [{"tool_calls": [{"index": 0, **head}]}]
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[at : at + 5]}}]}
            for at in range(0, len(ARGUMENTS), 5)
        ]
    else:
        deltas = [{"content": TEXT[at : at + 4]} for at in range(0, len(TEXT), 4)]
    for one in deltas:
        writer.write(framed(chunk(one)))
        await writer.drain()
    writer.write(framed(chunk({}, "tool_calls" if calls else "stop")))
    if (asked.get("stream_options") or {}).get("include_usage"):
        writer.write(framed(usage_chunk()))
    writer.write(framed(DONE) + END)


async def breaks_off(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    """A stream that ends in the middle."""
    writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "half of it"})))
    await writer.drain()
    await asyncio.sleep(0.02)
    writer.close()


def says(status: int, message: str, code: str | None = None) -> Answer:
    """Always an error as OpenAI tells it."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(status, {"error": {"message": message, "type": "x", "code": code}}))

    return answer


@asynccontextmanager
async def listening(
    answer: Answer = talks, *, accounts: Accounts | None = None, **settings: Any
) -> AsyncIterator[Listening]:
    """In front of `answer`, whose model is "chat"; ends with all connections closed."""
    entries: list[Entry] = []
    async with served(answer) as provider:
        built = gateway(
            {
                "providers": {"a": f"{provider.origin}/v1"},
                "models": {"chat": {"targets": [{"model": "a/m", "price": PRICE}]}},
                "retries": {"attempts": 1},
                **settings,
            },
            entries,
            accounts=accounts,
        )
        sock = listen("127.0.0.1", 0)
        http = HttpServer(built.app, sock, grace_s=1)
        http.start()
        try:
            yield Listening(url_of(sock), provider, entries)
        finally:
            http.stop()
            http.cut()
            await http.ended(5)
            sock.close()
            built.close()


def sent(provider: Scripted) -> dict[str, Any]:
    """The last body a provider was sent."""
    found: dict[str, Any] = json.loads(provider.requests[-1].partition(b"\r\n\r\n")[2])
    return found
