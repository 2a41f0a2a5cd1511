"""Requests over loopback for tests: against the mock, or against a server that plays a script."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headrace.bench.client.decode import Asked, decode
from headrace.bench.client.endpoints import Endpoint, HttpRequest, build_request
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.load_client import LoadClient
from headrace.bench.client.prompt import Prompt
from headrace.bench.client.raw import RawReply
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.record import RequestRecord

MS = 1_000_000
QUICK: dict[str, Any] = {"ttft_ms": 2, "tpot_ms": 1}
CHAT = Endpoint(kind="openai-chat", base_url="http://127.0.0.1:1", model="m")


def client_of(request: HttpRequest, **limits: Any) -> LoadClient:
    return LoadClient(request.origin, ClientLimits(**limits))


async def ask(endpoint: Endpoint, prompt: Prompt, **limits: Any) -> RequestRecord:
    """One request on a client of its own."""
    request = build_request(endpoint, prompt)
    client = client_of(request, **limits)
    origin_ns = time.monotonic_ns()
    try:
        raw = await client.send(request)
    finally:
        await client.close()
    return decode(
        raw,
        Asked(index=0, intended_ns=0),
        kind=endpoint.kind,
        stream=request.stream,
        origin_ns=origin_ns,
        secrets=endpoint.secrets,
    )


async def ask_mock(
    settings: MockSettings, prompt: Prompt | None = None, *, endpoint: Any = None, **limits: Any
) -> RequestRecord:
    """One request to a mock of its own. endpoint: fields of `Endpoint` beside the URL."""
    async with MockEndpoint(settings) as url:
        at = Endpoint(**{"kind": "openai-chat", "model": "m", **(endpoint or {}), "base_url": url})
        return await ask(at, prompt or Prompt(text="one two three", max_tokens=6), **limits)


@asynccontextmanager
async def scripted(*pieces: bytes, pause_s: float = 0.0, hold: bool = False) -> AsyncIterator[str]:
    """A server that answers the first bytes of each connection with `pieces`, then closes.

    hold: it does not close but waits for the client to.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if hold:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()
        await server.wait_closed()


async def ask_script(
    *pieces: bytes, kind: str = "openai-chat", stream: bool = True, **options: Any
) -> RequestRecord:
    """One request to a scripted server; `limits` are the client's, the rest the server's."""
    limits = options.pop("limits", {"request_timeout_s": 20})
    async with scripted(*pieces, **options) as url:
        endpoint = Endpoint(kind=kind, base_url=url, model="m", api_key="sk-secret-1234567890")  # type: ignore[arg-type]
        return await ask(endpoint, Prompt(text="hello", stream=stream), **limits)


def raw_reply(
    *pieces: tuple[int, bytes] | bytes,
    content_type: str = "text/event-stream",
    status: int = 200,
    **fields: Any,
) -> RawReply:
    """A reply as if it had come; pieces without a time come 1 ms apart."""
    timed = [
        piece if isinstance(piece, tuple) else ((index + 1) * MS, piece)
        for index, piece in enumerate(pieces)
    ]
    given: dict[str, Any] = {
        "begun_ns": 0,
        "sent_ns": 0,
        "headers_ns": 0,
        "end_ns": timed[-1][0] if timed else 0,
        "status": status,
        "headers": {"content-type": content_type},
        "complete": True,
    }
    return RawReply(**(given | fields), pieces=tuple(timed))


def record_of(raw: RawReply, kind: Any = "openai-chat", *, stream: bool = True) -> RequestRecord:
    return decode(raw, Asked(index=0, intended_ns=0), kind=kind, stream=stream, origin_ns=0)
