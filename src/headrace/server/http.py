"""The app under uvicorn, as a task of our own loop, with our own signals and our own end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

# Idle connections stay open longer than clients keep them in their pools (httpx: 5 s, nginx: 60 s),
# so that it is the client that closes and no request meets a connection just closed.
IDLE_CONNECTION_S = 75

# After the engine has ended, streams need only a moment to say so.
LAST_WORDS_S = 2


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers: whoever runs the process decides what a signal means."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpServer:
    """Serves on a listening socket from `start` until `stop`."""

    def __init__(self, app: ASGIApp, sock: socket.socket, *, grace_s: int) -> None:
        """grace_s: how long open requests may go on after `stop`."""
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_CONNECTION_S,
            timeout_graceful_shutdown=grace_s + LAST_WORDS_S,
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
