"""A provider that speaks OpenAI's chat completions, word by word as a test wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

Answer = Callable[[int, bytes, asyncio.StreamWriter], Awaitable[None]]
USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}


def body_of(request: bytes) -> dict[str, Any]:
    """The JSON of a request."""
    found: dict[str, Any] = json.loads(request.partition(b"\r\n\r\n")[2])
    return found


def reply(status: int, value: Any, *headers: str) -> bytes:
    """A reply of JSON."""
    body = json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}",
             "content-type: application/json", *headers]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def completion(text: str, model: str = "m") -> dict[str, Any]:
    """A whole answer."""
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text},
                     "finish_reason": "stop"}],
        "usage": USAGE, "x_new_field": {"kept": [1, 2.50]},
    }  # fmt: skip


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One event of a stream."""
    value = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }  # fmt: skip
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def usage_chunk() -> bytes:
    value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
             "choices": [], "usage": USAGE}  # fmt: skip
    return b"data: " + json.dumps(value).encode() + b"\n\n"


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
DONE = b"data: [DONE]\n\n"


def framed(piece: bytes) -> bytes:
    """As a chunk of HTTP."""
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


END = b"0\r\n\r\n"


def answers(text: str = "Hello there") -> Answer:
    """Whole or streamed, as asked."""

    async def answer(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = body_of(request)
        if not asked.get("stream"):
            writer.write(reply(200, completion(text, asked["model"])))
            return
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": ""})))
        for word in text.split(" "):
            writer.write(framed(chunk({"content": word + " "})))
            await writer.drain()
        writer.write(framed(chunk({}, "stop")))
        if (asked.get("stream_options") or {}).get("include_usage"):
            writer.write(framed(usage_chunk()))
        writer.write(framed(DONE) + END)

    return answer


def fails(status: int, message: str = "no", *headers: str) -> Answer:
    """Always the same error."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(status, {"error": {"message": message, "type": "x"}}, *headers))

    return answer


def first(*each: Answer) -> Answer:
    """The first request by the first, the second by the second, all later ones by the last."""
    count = 0

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        chosen = each[min(count, len(each) - 1)]
        count += 1
        await chosen(number, request, writer)

    return answer
