"""The admin API over sockets, where clients come and go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from headrace.http.listen import listen, url_of
from headrace.http.server import HttpServer
from tests.gateway.admin.house import KEY, House


@asynccontextmanager
async def over_sockets(house: House) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the key."""
    sock = listen("127.0.0.1", 0)
    http = HttpServer(house.app, sock, grace_s=1)
    http.start()
    headers = {"authorization": f"Bearer {KEY}"}
    try:
        async with httpx.AsyncClient(base_url=url_of(sock), headers=headers, timeout=20) as client:
            yield client
    finally:
        http.stop()
        http.cut()
        await http.ended(5)
        sock.close()


async def events(reply: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Of a stream."""
    async for line in reply.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line[6:])
