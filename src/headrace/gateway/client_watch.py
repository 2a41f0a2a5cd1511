"""Notices when a client leaves before its answer."""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.types import Receive

from headrace.gateway.asgi_sink import AsgiSink

_WATCHED_AFTER_S = 0.02


class ClientWatch:
    """A context whose work is cancelled, without an error, once the client has left.

    `sink.gone` then holds. It looks only after a moment: by then quick answers are sent, and a task
    for each would be a good part of their cost.
    """

    def __init__(self, receive: Receive, sink: AsgiSink) -> None:
        self._receive = receive
        self._sink = sink
        self._watching: asyncio.Future[None] | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served = task
        self._timer = asyncio.get_running_loop().call_later(_WATCHED_AFTER_S, self._begin)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if not isinstance(error, asyncio.CancelledError) or not self._sink.gone:
            return False
        self._served.uncancel()
        return True

    def _begin(self) -> None:
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._sink.gone = True
        self._served.cancel()
