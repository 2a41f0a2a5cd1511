"""Server-sent events to a page, until they end or the page goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.gateway.admin.call import MOST_STREAMS, Shared
from headrace.gateway.admin.errors import AdminError
from headrace.http.headers import EVENT_STREAM
from headrace.protocol.sse import KEEP_ALIVE, data_event

# Proxies close what is silent for a minute.
_KEEP_ALIVE_S = 15.0

Events = AsyncIterator[msgspec.Struct]


class EventStream(Response):
    """A stream of events, which are Structs, one JSON each. When the page goes, what makes them is
    closed, and the reply ends once it is.
    """

    def __init__(self, make: Callable[[], Events], shared: Shared) -> None:
        if shared.streams >= MOST_STREAMS:
            raise AdminError(
                503, f"{MOST_STREAMS} streams are open, which is the limit; close some pages",
                "too_many_streams", retry_after_s=5,
            )  # fmt: skip
        # `cache-control` is that of all replies here.
        headers = {name: one for name, one in EVENT_STREAM.items() if name != "cache-control"}
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._make = make
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until one of both is at its end, or the gateway."""
        self._shared.streams += 1
        try:
            await self._serve(receive, send)
        finally:
            self._shared.streams -= 1

    async def _serve(self, receive: Receive, send: Send) -> None:
        telling = asyncio.ensure_future(self._tell(send))
        leaving = asyncio.ensure_future(_left(receive))
        ending = asyncio.ensure_future(self._shared.ending.wait())
        try:
            await asyncio.wait({telling, leaving, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (telling, leaving, ending):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await telling
        if telling.cancelled() and self._shared.ending.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        events = self._make()
        waiting: asyncio.Future[msgspec.Struct] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(anext(events))
                done, _ = await asyncio.wait({waiting}, timeout=_KEEP_ALIVE_S)
                if not done:
                    await send(_body(KEEP_ALIVE))
                    continue
                try:
                    event = waiting.result()
                except StopAsyncIteration:
                    break
                waiting = None
                await send(_body(data_event(msgspec.json.encode(event))))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if waiting is not None and not waiting.done():
                waiting.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await waiting
            aclose = getattr(events, "aclose", None)
            if aclose is not None:
                await aclose()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _body(piece: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": piece, "more_body": True}
