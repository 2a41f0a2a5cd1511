"""A provider of bad days: it answers, and now and then it does what providers do when they fail.

It speaks OpenAI's chat completions on a socket of its own and remembers what it told of each
request's tokens, by the number that stands in the prompt, so that bills can be compared with it.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

NUMBER = re.compile(rb"number (\d+) of the soak")
# Of a hundred requests; the rest is answered as it should be.
FAULTS = {
    "429": 2.0, "500": 1.5, "503": 1.0, "closed": 1.0, "cut_head": 0.5, "html": 0.5,
    "truncated": 0.5, "not_json": 0.5, "dies": 1.5, "hangs": 0.3, "reset": 0.5,
}  # fmt: skip
_BROKEN_BODIES = {
    "html": b"<html>Bad gateway</html>",
    "truncated": b'{"id": "x", "choices": [{"mess',
    "not_json": b"\xff\xfe\x00garbage",
}
_LONGEST_HANG_S = 30.0


class Told(NamedTuple):
    """Tokens of one whole answer, as the provider counts."""

    prompt: int
    completion: int


class Provider:
    """told: by a request's number, of each whole answer to it. did: how often it did what."""

    def __init__(self, seed: int, gap_s: float) -> None:
        self._random = random.Random(seed)
        self._gap_s = gap_s
        self.told: defaultdict[int, list[Told]] = defaultdict(list)
        self.did: Counter[str] = Counter()
        self.open_connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the gateway."""
        self.open_connections += 1
        try:
            while body := await _request(reader):
                if not await self._answer(body, writer):
                    break
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.did["left alone"] += 1
        finally:
            self.open_connections -= 1
            writer.close()

    async def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        asked = json.loads(body)
        found = NUMBER.search(body)
        assert found is not None
        number = int(found[1])
        fate = self._fate()
        self.did[fate] += 1
        if fate in ("429", "500", "503"):
            error = {"error": {"message": "not now", "type": "x"}}
            writer.write(_reply(int(fate), error, b"retry-after: 1\r\n"))
            return True
        if fate in _BROKEN_BODIES:
            writer.write(_plain(200, _BROKEN_BODIES[fate]))
            return True
        if fate == "closed":
            return False
        if fate == "cut_head":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-")
            return False
        if fate == "reset":
            writer.transport.abort()
            return False
        told = Told(10 + number % 500, self._random.randint(1, 60))
        if not asked.get("stream"):
            if fate == "hangs":
                await asyncio.sleep(_LONGEST_HANG_S)
            elif fate == "dies":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{")
                return False
            writer.write(_reply(200, _completion(asked["model"], told)))
        elif not await self._stream(asked, told, fate, writer):
            return False
        self.told[number].append(told)
        return True

    async def _stream(
        self, asked: dict[str, object], told: Told, fate: str, writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked"
            b"\r\n\r\n"
        )
        ends_at = self._random.randrange(told.completion) if fate in ("dies", "hangs") else None
        for at in range(told.completion):
            writer.write(_event(_delta({"content": " water"})))
            await writer.drain()
            if at == ends_at:
                if fate == "hangs":
                    await asyncio.sleep(_LONGEST_HANG_S)
                return False
            await asyncio.sleep(self._random.expovariate(1 / self._gap_s))
        usage = {**_delta({}), "choices": [], "usage": _usage(told)}
        writer.write(_event(_delta({}, "stop")) + _event(usage))
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        return True

    def _fate(self) -> str:
        drawn = self._random.uniform(0, 100)
        for name, share in FAULTS.items():
            drawn -= share
            if drawn < 0:
                return name
        return "answered"


@asynccontextmanager
async def serving(provider: Provider) -> AsyncIterator[str]:
    """The base URL of a provider that listens."""
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def _request(reader: asyncio.StreamReader) -> bytes:
    """A body; b"" when the gateway has closed the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert found is not None, head
    return await reader.readexactly(int(found[1]))


def _reply(status: int, value: object, headers: bytes = b"") -> bytes:
    return _plain(status, json.dumps(value).encode(), headers)


def _plain(status: int, body: bytes, headers: bytes = b"") -> bytes:
    headers += b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
    return b"HTTP/1.1 %d X\r\n%s\r\n%s" % (status, headers, body)


def _usage(told: Told) -> dict[str, int]:
    return {
        "prompt_tokens": told.prompt,
        "completion_tokens": told.completion,
        "total_tokens": told.prompt + told.completion,
    }


def _completion(model: object, told: Told) -> dict[str, object]:
    message = {"role": "assistant", "content": " water" * told.completion}
    return {
        "id": "c-1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": _usage(told),
    }  # fmt: skip


def _delta(delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [choice],
    }  # fmt: skip


def _event(value: object) -> bytes:
    data = b"data: " + json.dumps(value).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)
