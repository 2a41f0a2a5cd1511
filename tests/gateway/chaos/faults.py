"""What providers do wrong, each in its own way, by the name of the model that is asked for."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.gateway.openai_provider import (
    STREAM_HEAD,
    USAGE,
    answers,
    body_of,
    chunk,
    completion,
    framed,
    reply,
)

Writer = asyncio.StreamWriter
Fault = Callable[[dict[str, Any], Writer], Awaitable[None]]
# Longer than any bound of these tests: whoever waits for it fails.
_HANGS_S = 30.0
GOOD = "good"
TEXT = "Hello there"
_JSON = "content-type: application/json"
_BIG_BYTES = 20 * 2**20


def reset(writer: Writer) -> None:
    """End the connection with RST: what was sent and not yet read is lost."""
    if writer.transport.is_closing():
        return  # the other side has gone before
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _head(status: int, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode()


def _sends(data: bytes, *, then: Callable[[Writer], object] | None = None) -> Fault:
    async def fault(asked: dict[str, Any], writer: Writer) -> None:
        writer.write(data)
        await writer.drain()
        if then is not None:
            await asyncio.sleep(0.02)
            then(writer)

    return fault


def _hangs(data: bytes = b"") -> Fault:
    async def fault(asked: dict[str, Any], writer: Writer) -> None:
        writer.write(data)
        await writer.drain()
        await _nothing_more(writer)

    return fault


async def _nothing_more(writer: Writer) -> None:
    """Until the other side has had enough."""
    for _ in range(round(_HANGS_S / 0.02)):
        if writer.transport.is_closing():
            return
        await asyncio.sleep(0.02)


def _half(then: Callable[[Writer], object] | None) -> Fault:
    """Half of an answer, whole or streamed as asked; then the connection's end, or nothing more."""

    async def fault(asked: dict[str, Any], writer: Writer) -> None:
        if asked.get("stream"):
            writer.write(STREAM_HEAD + framed(chunk({"content": "half of it"})))
        else:
            writer.write(reply(200, completion(TEXT))[:-40])
        await writer.drain()
        await asyncio.sleep(0.05)
        if then is None:
            await _nothing_more(writer)
        else:
            then(writer)

    return fault


def _drips(data: bytes, gap_s: float) -> Fault:
    """A byte at a time: a slow loris."""

    async def fault(asked: dict[str, Any], writer: Writer) -> None:
        for at in range(len(data)):
            if writer.transport.is_closing():
                return
            writer.write(data[at : at + 1])
            await writer.drain()
            await asyncio.sleep(gap_s)

    return fault


def _error_page(asked: dict[str, Any], writer: Writer) -> Awaitable[None]:
    async def send() -> None:
        writer.write(_head(500, "content-type: text/html", f"content-length: {_BIG_BYTES}"))
        piece = b"<p>we are sorry</p>" * 4096
        sent = 0
        while sent < _BIG_BYTES and not writer.transport.is_closing():
            part = piece[: _BIG_BYTES - sent]
            writer.write(part)
            sent += len(part)
            await writer.drain()

    return send()


_BODY = json.dumps(completion(TEXT)).encode()
_PACKED = gzip.compress(_BODY)
_INVALID = _BODY.replace(b"Hello", b"H\xff\xfello")
_HTML = "content-type: text/html"
_EVENTS = "content-type: text/event-stream"
_CHUNKED = "transfer-encoding: chunked"

# Nobody has seen anything of an answer when these are noticed: another target answers.
BEFORE_CONTENT: dict[str, Fault] = {
    "fin-before-head": _sends(b"", then=Writer.close),
    "rst-before-head": _sends(b"", then=reset),
    "hang-before-head": _hangs(),
    "hang-after-head": _hangs(_head(200, _JSON, "content-length: 100")),
    "hang-in-head": _hangs(b"HTTP/1.1 200 OK\r\ncontent-ty"),
    "fin-after-head": _sends(_head(200, _JSON, "content-length: 100"), then=Writer.close),
    "rst-after-head": _sends(_head(200, _EVENTS, _CHUNKED), then=reset),
    "loris": _drips(_head(200, _JSON, "content-length: 9999"), 0.05),
    "html": _sends(_head(200, _HTML, "content-length: 15") + b"<html>hi</html>"),
    "truncated-json": _sends(_head(200, _JSON, "content-length: 30") + _BODY[:30]),
    "gzip": _sends(
        _head(200, _JSON, "content-encoding: gzip", f"content-length: {len(_PACKED)}") + _PACKED
    ),
    "big-error-page": _error_page,
    "invalid-utf8": _sends(_head(200, _JSON, f"content-length: {len(_INVALID)}") + _INVALID),
    "bad-chunk": _sends(_head(200, _EVENTS, _CHUNKED) + b"zz\r\nhello\r\n"),
    "huge-chunk": _sends(_head(200, _EVENTS, _CHUNKED) + b"f" * 400 + b"\r\n"),
    "no-content": _sends(_head(204)),
    "not-modified": _sends(_head(304, "content-length: 0")),
    "switching": _sends(_head(101, "upgrade: x", "connection: upgrade") + b"\x00\x01"),
    "two-lengths": _sends(_head(200, _JSON, "content-length: 5", "content-length: 6") + b"{}"),
    "negative-length": _sends(_head(200, _JSON, "content-length: -5") + b"{}"),
    "not-http": _sends(b"SSH-2.0-OpenSSH_9.2\r\n", then=Writer.close),
    "huge-head": _sends(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000 + b"\r\n\r\n"),
    "empty-stream": _sends(_head(200, _EVENTS, "content-length: 0")),
    "error-in-200": _sends(reply(200, {"error": {"message": "overloaded", "type": "x"}})),
}  # fmt: skip
# Of a stream, something has been told by then; a whole answer has not.
MID_ANSWER: dict[str, Fault] = {
    "fin-mid-answer": _half(Writer.close),
    "rst-mid-answer": _half(reset),
    "hang-mid-answer": _half(None),
}
# Unusual, and right.
HARMLESS: dict[str, Fault] = {
    "continue": _sends(_head(100) + _head(103, "link: </x>") + reply(200, completion(TEXT))),
}
FAULTS = {**BEFORE_CONTENT, **MID_ANSWER, **HARMLESS}


class Provider:
    """Answers well as GOOD, and wrongly as what it is asked for. counted: requests by model;
    billed: tokens in and out of whole answers, as it would write them on its bill."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.billed: Counter[str] = Counter()
        self._well = answers(TEXT)

    async def answer(self, number: int, request: bytes, writer: Writer) -> None:
        asked = body_of(request)
        self.counted[asked["model"]] += 1
        if asked["model"] != GOOD:
            await FAULTS[asked["model"]](asked, writer)
            return
        await self._well(number, request, writer)
        self.billed["in"] += USAGE["prompt_tokens"]
        self.billed["out"] += USAGE["completion_tokens"]
