"""Bytes to a gateway as no library would send them, and what came back."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, NamedTuple

from tests.gateway.workers.gateway_process import KEY, Running

_REPLY = re.compile(rb"HTTP/1\.1 \d{3} ")
CHAT = b'{"model": "good", "messages": [{"role": "user", "content": "Hi"}]}'
AUTH = f"authorization: Bearer {KEY}"


class Heard(NamedTuple):
    """status: of the first reply, 0 if there was none. replies: how many heads came."""

    status: int
    head: bytes
    body: bytes
    replies: int

    @property
    def error(self) -> dict[str, Any]:
        """Raises where the body is no error in JSON."""
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


def request(
    *headers: str | bytes,
    body: bytes = CHAT,
    target: str = "/v1/chat/completions",
    method: str = "POST",
    auth: str | None = AUTH,
    length: bool = True,
) -> bytes:
    """A request; headers as they are."""
    lines: list[bytes] = [f"{method} {target} HTTP/1.1".encode("latin-1"), b"host: localhost"]
    lines += [auth.encode("latin-1")] if auth else []
    lines += [f"content-length: {len(body)}".encode()] if length else []
    lines += [one if isinstance(one, bytes) else one.encode("latin-1") for one in headers]
    return b"\r\n".join([*lines, b"", body])


async def sent(gateway: Running, data: bytes, *, within_s: float = 5.0) -> Heard:
    """On a connection of its own; until the gateway closes it or says no more for a moment."""
    origin = gateway.pool.origin
    reader, writer = await asyncio.open_connection(origin.host, origin.port)
    heard = b""
    try:
        writer.write(data)
        await writer.drain()
        heard = await _first_reply(reader, within_s)
        # What is smuggled in would be answered by a second reply.
        while piece := await asyncio.wait_for(reader.read(65536), 0.15):
            heard += piece
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    head, _, body = heard.partition(b"\r\n\r\n")
    status = int(head[9:12]) if head.startswith(b"HTTP/1.1 ") else 0
    return Heard(status, head, _first_body(head, body), len(_REPLY.findall(heard)))


async def _first_reply(reader: asyncio.StreamReader, within_s: float) -> bytes:
    async with asyncio.timeout(within_s):
        heard = b""
        while b"\r\n\r\n" not in heard:
            piece = await reader.read(65536)
            if not piece:
                return heard
            heard += piece
        head, _, body = heard.partition(b"\r\n\r\n")
        while len(body) < _length(head):
            piece = await reader.read(65536)
            if not piece:
                break
            body += piece
        return head + b"\r\n\r\n" + body


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _first_body(head: bytes, body: bytes) -> bytes:
    return body[: _length(head)] if _length(head) else body
