"""A streamed reply: events, bytes that keep it alive, and an end as soon as nobody reads.

Each item of the source is one write. A failure after the headers is sent becomes an error event,
and the stream ends there, without [DONE].
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.http.headers import EVENT_STREAM
from headrace.server.api_error import ApiError, api_error
from headrace.server.connection import end_tasks, first_of, gone
from headrace.server.replies.reply import OPENAI_FORM, StreamForm

# Proxies and clients give up on a silent connection after 30 s or more.
KEEP_ALIVE_S = 15.0


class EventStream(Response):
    """A stream that sends `events`; closes that generator when the client goes or the server ends.

    on_end: called when it is over, however that came about and even if nothing was sent.
    """

    on_end: Callable[[], None] | None = None

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        request_id: str,
        clock: Callable[[], float],
        headers: Mapping[str, str],
        keep_alive_s: float = KEEP_ALIVE_S,
        form: StreamForm = OPENAI_FORM,
    ) -> None:
        self._form = form
        self.status_code = 200
        self.background = None
        self.init_headers({**EVENT_STREAM, **self._form.headers, **headers})
        self._events = events
        self._request_id = request_id
        self._clock = clock
        self._keep_alive_s = keep_alive_s
        self._sent_s = 0.0
        self._abandoned: asyncio.Future[ApiError] = asyncio.get_running_loop().create_future()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run to the end of the source, or until the client has gone."""
        try:
            await self._run(receive, send)
        finally:
            if self.on_end is not None:
                self.on_end()

    async def _run(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self._sent_s = self._clock()
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        pump = loop.create_task(self._pump(send))
        tasks += (pump, loop.create_task(gone(receive)))
        beat = loop.call_later(
            self._keep_alive_s, lambda: tasks.append(loop.create_task(self._keep_alive(send)))
        )
        try:
            await first_of(*tasks, self._abandoned)
            if pump.done():
                pump.result()
        finally:
            cut = not pump.done()
            beat.cancel()
            await end_tasks(*tasks)
        if cut and self._abandoned.done():
            await self._write(send, self._form.error(self._abandoned.result()))
            await self._finish(send)

    def pass_through(
        self, work: Callable[[AsyncGenerator[bytes, None]], AsyncGenerator[bytes, None]]
    ) -> None:
        """Send what `work` makes of the events, which closes them at its own end. To be called
        before anything is sent."""
        self._events = work(self._events)

    def abandon(self, error: ApiError) -> None:
        """End the stream with this error's event, wherever it is; without effect at its end."""
        if not self._abandoned.done():
            self._abandoned.set_result(error)

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._events):
            try:
                async for event in self._events:
                    await self._write(send, event)
            except Exception as failure:  # sent as an event, and logged by api_error if unforeseen
                error = api_error(failure, self._request_id)
                await self._write(send, self._form.error(error))
        await self._finish(send)

    async def _finish(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})
        self._sent_s = self._clock()

    async def _keep_alive(self, send: Send) -> None:
        while True:
            silent_s = self._clock() - self._sent_s
            if silent_s >= self._keep_alive_s:
                if kept := self._form.keep_alive():
                    await self._write(send, kept)
                else:
                    self._sent_s = self._clock()
                silent_s = 0.0
            await asyncio.sleep(self._keep_alive_s - silent_s)
