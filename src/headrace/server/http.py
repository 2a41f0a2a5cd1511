"""The app under uvicorn, as a task of our own loop, with our own signals and our own end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

logger = logging.getLogger(__name__)

# Idle connections stay open longer than clients keep them in their pools (httpx: 5 s, nginx: 60 s),
# so that it is the client that closes and no request meets a connection just closed.
IDLE_CONNECTION_S = 75

# How long a client may take nothing of what is written to it, with all buffers on the way full;
# nginx's send_timeout is the same.
STALLED_READER_S = 60.0

# Tasks are cancelled, with a traceback each, if they go on for so long after the grace. Only work
# in threads can take so long once its connection is cut.
LAST_RESORT_S = 12


class _Connection(HttpToolsProtocol):
    """A connection that is cut when its client does not read: what it holds has an end."""

    stalled_reader_s = STALLED_READER_S
    _stall: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The buffer is full."""
        self._stall = self.loop.call_later(self.stalled_reader_s, self._cut)
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self._clear_stall()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, by whoever."""
        self._clear_stall()
        super().connection_lost(exc)

    def _clear_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _cut(self) -> None:
        logger.warning(
            "the connection of %s was cut: nothing was read from it for %g s",
            self.client,
            self.stalled_reader_s,
        )
        self.transport.abort()


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers: whoever runs the process decides what a signal means."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpServer:
    """Serves on a listening socket from `start` until `stop`."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        *,
        grace_s: int,
        stalled_reader_s: float = STALLED_READER_S,
    ) -> None:
        """grace_s: how long open requests may go on after `stop`. stalled_reader_s: how long a
        client may leave unread what is written to it."""
        protocol: dict[str, Any] = {"stalled_reader_s": stalled_reader_s}
        config = uvicorn.Config(
            app,
            http=type("Connection", (_Connection,), protocol),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_CONNECTION_S,
            timeout_graceful_shutdown=grace_s + LAST_RESORT_S,
        )
        self._server = _Uvicorn(config)
        self._sock = sock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer."""
        self._task = asyncio.ensure_future(self._server.serve(sockets=[self._sock]))

    def stop(self) -> None:
        """Take no more requests; open ones go on until they end or the grace is over."""
        self._server.should_exit = True

    async def ended(self, timeout_s: float | None = None) -> bool:
        """Wait until every connection is closed after `stop`; whether that is so."""
        if self._task is None:
            return True
        await asyncio.wait({self._task}, timeout=timeout_s)
        if self._task.done():
            self._task.result()
        return self._task.done()

    def cut(self) -> None:
        """Close every connection that is still open, whatever it was to send."""
        connections = list(self._server.server_state.connections)
        if connections:
            logger.warning(
                "%d connection(s) were cut: their clients did not read to the end",
                len(connections),
            )
        for connection in connections:
            connection.transport.abort()
