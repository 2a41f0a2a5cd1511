"""A server that answers each connection by a script of ours, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from headrace.gateway.upstream.origin import Origin

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


class Scripted:
    """connections: how many were made. requests: heads and bodies as they came."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.connections = 0
        self.requests: list[bytes] = []


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request, head and body; b"" if the client has gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = 0
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    return head + await reader.readexactly(length)


@asynccontextmanager
async def served(
    answer: Callable[[int, bytes, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Scripted]:
    """answer: is given the connection's number from 1, each request, and where to write."""
    scripted = Scripted(Origin("http", "127.0.0.1", 0))
    open_writers: set[asyncio.StreamWriter] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scripted.connections += 1
        number = scripted.connections
        open_writers.add(writer)
        try:
            while request := await read_request(reader):
                scripted.requests.append(request)
                await answer(number, request, writer)
                if writer.is_closing():
                    break
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            open_writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    scripted.origin = Origin("http", "127.0.0.1", port)
    try:
        yield scripted
    finally:
        server.close()
        for writer in list(open_writers):
            writer.close()
        await asyncio.sleep(0)
