"""Servers that misbehave, on loopback and a thread of their own, for commands in other processes.

A server answers GETs as one that works would, so that a client comes as far as its first request;
what becomes of POSTs is given. Nothing is framed for the caller: replies are bytes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

LAST_PIECE = b"0\r\n\r\n"
START_TIMEOUT_S = 60


class Request(NamedTuple):
    """number: counts POSTs from 0, or GETs."""

    method: str
    path: str
    number: int
    body: bytes


# Writes a reply; True: the connection may carry another request.
Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[bool]]


def whole(status: int, body: bytes, kind: str = "application/json", **headers: str) -> bytes:
    """A reply with its length; underscores of header names are hyphens."""
    lines = [f"HTTP/1.1 {status} Status", f"content-type: {kind}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def stream_head(kind: str = "text/event-stream", **headers: str) -> bytes:
    """The head of a body in pieces."""
    lines = ["HTTP/1.1 200 OK", f"content-type: {kind}", "transfer-encoding: chunked"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def piece(data: bytes) -> bytes:
    """A piece of such a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(**fields: Any) -> bytes:
    """A server-sent event of a chat; `content`, `role` and `finish_reason` where they belong."""
    delta = {name: fields.pop(name) for name in ("role", "content") if name in fields}
    reason = fields.pop("finish_reason", None)
    choices = [{"index": 0, "delta": delta, "finish_reason": reason}] if delta or reason else []
    return b"data: %b\n\n" % json.dumps({"choices": choices} | fields).encode()


def usage(tokens: int) -> dict[str, Any]:
    """Token counts of an answer of so many tokens."""
    return {"usage": {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 8 + tokens}}


DONE = b"data: [DONE]\n\n"
STOP = event(finish_reason="stop")
GOOD_EVENTS = (event(role="assistant"), event(content="a"), event(content=" b"), STOP)


def good_body(*more: bytes) -> bytes:
    """An answer of two tokens, `more` events, and the end."""
    return b"".join([*GOOD_EVENTS, *more, DONE])


def good_reply() -> bytes:
    """All of a stream that nothing is wrong with."""
    return stream_head() + piece(good_body(event(**usage(2)))) + LAST_PIECE


def always(reply: bytes, *, keep: bool = True) -> Answer:
    """The same bytes for every request."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(reply)
        await writer.drain()
        return keep

    return answer


def then_closed(reply: bytes) -> Answer:
    """The same bytes for every request, in one packet with the end of the connection."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> bool:
        corked = writer.get_extra_info("socket")
        corked.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        writer.write(reply)
        await writer.drain()
        return False

    return answer


def models(*names: str) -> bytes:
    """What /v1/models says."""
    return whole(200, json.dumps({"data": [{"id": name} for name in names]}).encode())


async def _get(request: Request, writer: asyncio.StreamWriter) -> bool:
    known = request.path == "/v1/models"
    writer.write(models("m") if known else whole(404, b'{"error":{"message":"not here"}}'))
    await writer.drain()
    return True


class _Server:
    def __init__(self, post: Answer, get: Answer) -> None:
        self._answers = {"POST": post, "GET": get}
        self._numbers = {"POST": 0, "GET": 0}

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the test is over
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        length = 0
        for line in head.split("\r\n"):
            name, _, value = line.partition(":")
            length = int(value) if name.lower() == "content-length" else length
        body = await reader.readexactly(length)
        number = self._numbers[method]
        self._numbers[method] += 1
        return await self._answers[method](Request(method, path, number, body), writer)


@contextmanager
def misbehaving(
    post: Answer, *, get: Answer = _get, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """The URL of such a server, without a path; it ends with the block, whatever it is at."""
    ready, port = threading.Event(), 0
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        nonlocal port
        server = await asyncio.start_server(_Server(post, get).take, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(START_TIMEOUT_S)
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(START_TIMEOUT_S)
        loop.close()
