"""The translating server in front of `headrace serve`: llama-server's names in, ours behind.

A client that goes away takes its request along: the connection behind is closed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from tools.tour.llamacpp import translation
from tools.tour.llamacpp.arguments import Settings
from tools.tour.llamacpp.http import Reply, Request, call, head_of, read_request, whole_reply

_NOT_UP = {"error": {"message": "the server behind is not up yet", "code": 503}}


class Proxy:
    """What one launched server does with connections."""

    def __init__(self, settings: Settings, socket: str, served: frozenset[str]) -> None:
        self._settings = settings
        self._socket = socket
        self._served = served

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        try:
            if (request := await read_request(reader)) is None:
                return
            answering = asyncio.ensure_future(self._answer(request, writer))
            gone = asyncio.ensure_future(reader.read(1))
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not answering.done():
                answering.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await answering
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        try:
            await self._translated(request, writer)
        except (FileNotFoundError, ConnectionRefusedError):
            writer.write(whole_reply("503 Service Unavailable", _NOT_UP))
        await writer.drain()

    async def _translated(self, request: Request, writer: asyncio.StreamWriter) -> None:
        fields = request.fields() if request.method == "POST" else None
        if request.path == "/slots" and self._settings.slots:
            await self._slots(request, writer)
        elif fields is not None and request.path == "/tokenize":
            content = translation.tokenize_request(fields)
            await self._converted(request, content, translation.tokenize_reply, writer)
        elif fields is not None and request.path == "/detokenize":
            await self._converted(
                request, fields, lambda reply: {"content": reply["prompt"]}, writer
            )
        elif fields is not None and request.path in translation.COUNTING_PATHS:
            await self._converted(
                replace(request, target="/tokenize"),
                fields,
                lambda reply: {"input_tokens": reply["count"]},
                writer,
            )
        elif fields is not None and request.path in translation.RESPONSES_PATHS:
            body = json.dumps(translation.of_served(fields, self._served)).encode()
            async with self._call(request, request.target, body) as reply:
                await _relay(reply, writer)
        elif fields is not None and request.path in translation.GENERATION_PATHS:
            await self._generate(request, fields, writer)
        else:
            async with self._call(request, request.target, request.body) as reply:
                await _relay(reply, writer)

    async def _generate(
        self, request: Request, fields: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        settings = self._settings
        defaults = settings.temperature, settings.seed, settings.max_tokens, self._served
        if request.path in translation.COMPLETION_PATHS:
            native = json.dumps(translation.native_request(fields, *defaults)).encode()
            async with self._call(request, "/completion", native) as reply:
                await _relay(reply, writer)
            return
        body = translation.with_defaults(fields, *defaults)
        if request.path == "/v1/completions":
            await self._fill_limit(request, body)
        async with self._call(request, request.target, json.dumps(body).encode()) as reply:
            await _relay_named(reply, writer)

    async def _fill_limit(self, request: Request, body: dict[str, Any]) -> None:
        """Count the prompt where a text may go on to the end of the context."""
        limit = body.get("max_tokens", -1)
        prompt = body.get("prompt")
        if limit != -1 or not isinstance(prompt, str | list):
            return
        if isinstance(prompt, str):
            counted = json.dumps({"prompt": prompt}).encode()
            async with self._call(request, "/tokenize", counted) as reply:
                if not reply.is_ok:
                    return
                longest = json.loads(await reply.whole())["count"]
        else:
            longest = max((len(part) for part in prompt if isinstance(part, list)), default=0)
            longest = longest or len(prompt)
        body["max_tokens"] = max(self._settings.context_tokens - longest, 1)

    async def _slots(self, request: Request, writer: asyncio.StreamWriter) -> None:
        async with self._call(request, "/metrics", b"", method="GET") as reply:
            metrics = (await reply.whole()).decode()
        count = int(self._settings.serve[self._settings.serve.index("--max-num-seqs") + 1])
        rows = translation.slots(metrics, count, self._settings.context_tokens)
        writer.write(whole_reply("200 OK", rows))

    async def _converted(
        self, request: Request, body: dict[str, Any], convert: Any, writer: asyncio.StreamWriter
    ) -> None:
        async with self._call(request, request.target, json.dumps(body).encode()) as reply:
            if reply.is_ok:
                writer.write(whole_reply("200 OK", convert(json.loads(await reply.whole()))))
            else:
                await _relay(reply, writer)

    @contextlib.asynccontextmanager
    async def _call(
        self, request: Request, target: str, body: bytes, method: str = ""
    ) -> AsyncIterator[Reply]:
        reply, behind = await call(
            self._socket, method or request.method, target, request.headers, body
        )
        try:
            yield reply
        finally:
            behind.close()


async def _relay(reply: Reply, writer: asyncio.StreamWriter) -> None:
    writer.write(head_of(reply))
    async for part in reply.body:
        writer.write(part)
        await writer.drain()


async def _relay_named(reply: Reply, writer: asyncio.StreamWriter) -> None:
    """Relay a reply line by line, its fingerprint written as theirs is."""
    writer.write(head_of(reply))
    rest = b""
    async for part in reply.body:
        *lines, rest = (rest + part).split(b"\n")
        writer.writelines(translation.with_build(line) + b"\n" for line in lines)
        await writer.drain()
    writer.write(translation.with_build(rest))
