"""A request to an ASGI application of this process, whose reply is read as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.types import ASGIApp, Message

from headrace.gateway.admin.gatehouse import Asked

# Pieces that wait for a reader; behind them the application waits, as it does for a slow client.
_MOST_WAITING = 16
# An application that was told of the client's end has so long to settle.
_END_S = 10.0


class _Exchange:
    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._gone = asyncio.Event()
        self.head: asyncio.Future[tuple[int, dict[str, str]]] = (
            asyncio.get_running_loop().create_future()
        )

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode(): one.decode("latin-1") for name, one in message["headers"]}
            self.head.set_result((message["status"], headers))
            return
        if message.get("body"):
            await self._put(message["body"])
        if not message.get("more_body", False):
            await self._put(None)

    async def _put(self, piece: bytes | None) -> None:
        if not self._gone.is_set():
            await self._pieces.put(piece)

    async def pieces(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    def ended(self, task: asyncio.Task[None]) -> None:
        """The application is done, well or not."""
        error = None if task.cancelled() else task.exception()
        if not self.head.done():
            self.head.set_exception(error or ConnectionError("the gateway gave no reply"))
        with suppress(asyncio.QueueFull):
            self._pieces.put_nowait(None)

    def leave(self) -> None:
        self._gone.set()
        while not self._pieces.empty():  # who waits for room goes on, and sends nothing more
            self._pieces.get_nowait()


@asynccontextmanager
async def asked_in_app(
    app: ASGIApp, body: bytes, path: str, headers: Mapping[str, str]
) -> AsyncIterator[Asked]:
    """A POST. Leaving tells the application that the client has gone, and returns at its end."""
    exchange = _Exchange(body)
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(name.encode(), one.encode("latin-1")) for name, one in headers.items()],
        "client": None,
    }
    task = asyncio.ensure_future(_run(app, scope, exchange))
    task.add_done_callback(exchange.ended)
    try:
        status, told = await asyncio.shield(exchange.head)
        yield Asked(status, told, exchange.pieces())
    finally:
        exchange.leave()
        if not exchange.head.done():
            exchange.head.cancel()
        _, running = await asyncio.wait({task}, timeout=_END_S)
        for one in running:
            one.cancel()


async def _run(app: ASGIApp, scope: dict[str, Any], exchange: _Exchange) -> None:
    await app(scope, exchange.receive, exchange.send)
