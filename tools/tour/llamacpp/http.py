"""As much of HTTP/1.1 as the tour needs: whole requests in, one reply per connection out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

MAX_HEAD_BYTES = 64 * 1024
Headers = list[tuple[str, str]]
# Headers that belong to a connection, or that change with the body.
_OWN = frozenset({"connection", "content-length", "transfer-encoding", "accept-encoding", "expect"})


@dataclass(frozen=True)
class Request:
    """A whole request of a client."""

    method: str
    target: str
    headers: Headers
    body: bytes

    @property
    def path(self) -> str:
        """Path without its query."""
        return self.target.partition("?")[0]

    def fields(self) -> dict[str, Any] | None:
        """The body as a JSON object, `None` where it is something else."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


@dataclass(frozen=True)
class Reply:
    """A reply whose body is still to be read."""

    status: str
    headers: Headers
    body: AsyncIterator[bytes]

    async def whole(self) -> bytes:
        """Read the body to its end."""
        return b"".join([part async for part in self.body])

    @property
    def is_ok(self) -> bool:
        """Whether the status is 200."""
        return self.status.startswith("200")


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read one request; `None` where the client went before it was whole."""
    try:
        first, headers = await _head(reader)
        body = await reader.readexactly(int(_value(headers, "content-length") or 0))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    method, target, _ = first.split(" ", 2)
    return Request(method, target, headers, body)


async def call(
    socket: str, method: str, target: str, headers: Headers, body: bytes
) -> tuple[Reply, asyncio.StreamWriter]:
    """Send a request to a Unix socket; close the writer when the reply is read."""
    reader, writer = await asyncio.open_unix_connection(socket)
    kept = [(name, value) for name, value in headers if name.lower() not in _OWN]
    kept += [("Connection", "close"), ("Content-Length", str(len(body)))]
    writer.write(_bytes_of(f"{method} {target} HTTP/1.1", kept) + body)
    await writer.drain()
    first, received = await _head(reader)
    return Reply(first.split(" ", 1)[1], received, _body(reader, received)), writer


def head_of(reply: Reply) -> bytes:
    """Write the head of a reply whose body ends with the connection."""
    kept = [(name, value) for name, value in reply.headers if name.lower() not in _OWN]
    return _bytes_of(f"HTTP/1.1 {reply.status}", [*kept, ("Connection", "close")])


def whole_reply(status: str, value: Any) -> bytes:
    """Write a reply of JSON."""
    body = json.dumps(value).encode()
    headers = [
        ("Content-Type", "application/json"), ("Connection", "close"),
        ("Content-Length", str(len(body))),
    ]  # fmt: skip
    return _bytes_of(f"HTTP/1.1 {status}", headers) + body


async def _head(reader: asyncio.StreamReader) -> tuple[str, Headers]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    headers = []
    for line in lines:
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    return first, headers


async def _body(reader: asyncio.StreamReader, headers: Headers) -> AsyncIterator[bytes]:
    if (_value(headers, "transfer-encoding") or "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        return
    length = _value(headers, "content-length")
    if length is not None:
        yield await reader.readexactly(int(length))
        return
    while part := await reader.read(MAX_HEAD_BYTES):
        yield part


def _value(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name), None)


def _bytes_of(first: str, headers: Headers) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
