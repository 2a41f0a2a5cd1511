"""A webhook's receiver on loopback that answers as a test wants it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.gateway.upstream.scripted import served

SECRET = "a-secret-of-the-webhook"


class Post(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_signed(self) -> bool:
        """As the documentation tells receivers to check it."""
        timestamp = self.headers["x-headrace-timestamp"]
        signed = f"{timestamp}.".encode() + self.body
        made = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        return hmac.compare_digest(self.headers["x-headrace-signature"], f"v1={made}")


class Receiver:
    def __init__(self) -> None:
        self.url = ""
        self.posts: list[Post] = []

    async def has(self, count: int) -> None:
        """Returns when so many came."""
        async with asyncio.timeout(20):
            while len(self.posts) < count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def receiving(answers: Sequence[str] = ("200 OK",)) -> AsyncIterator[Receiver]:
    """answers: status lines, with headers below, the last again and again."""
    receiver = Receiver()

    async def take(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        headers: dict[str, str] = {}
        for one in lines:
            name, _, value = one.partition(": ")
            headers[name.lower()] = value
        answer = answers[min(len(receiver.posts), len(answers) - 1)]
        receiver.posts.append(Post(line.split(" ")[1], headers, body))
        writer.write(f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n".encode())

    async with served(take) as scripted:
        receiver.url = f"{scripted.origin}/hook/of-a-secret?token=abc123"
        yield receiver
