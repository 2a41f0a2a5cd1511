"""The app under uvicorn, as a task of our own loop, with our own signals and our own end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Generator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from headrace.http.client_limits import ClientLimits
from headrace.http.connection import Connection
from headrace.http.host_names import HostNames
from headrace.http.starts import Starts

logger = logging.getLogger(__name__)

# Idle connections stay open longer than clients keep them in their pools (httpx: 5 s, nginx: 60 s),
# so that it is the client that closes and no request meets a connection just closed.
IDLE_CONNECTION_S = 75

# Tasks are cancelled, with a traceback each, if they go on for so long after the grace. Only work
# in threads can take so long once its connection is cut.
LAST_RESORT_S = 12


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers: whoever runs the process decides what a signal means."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpServer:
    """A server on a listening socket from `start` until `stop`."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        *,
        grace_s: int,
        limits: ClientLimits | None = None,
        hosts: HostNames | None = None,
        tls: ssl.SSLContext | None = None,
        on_refused: Callable[[int], None] | None = None,
    ) -> None:
        """grace_s: how long open requests may go on after `stop`. limits: what a client may take.
        hosts: the names that requests may be addressed to; None for any. tls: the server's
        certificate; without it connections are plain. on_refused: hears the status of each reply
        to what never reached the app."""
        protocol: dict[str, Any] = {"limits": limits or ClientLimits(), "starts": Starts()}
        protocol["hosts"] = hosts
        if on_refused is not None:
            protocol["on_refused"] = staticmethod(on_refused)
        config = uvicorn.Config(
            app,
            http=type("Connection", (Connection,), protocol),
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
        config.load()
        config.ssl = tls  # uvicorn's own would ask for a key's password on the terminal
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

    @property
    def unwritten_bytes(self) -> int:
        """Of replies, that wait in this process for their clients to read."""
        connections = self._server.server_state.connections
        return sum(one.transport.get_write_buffer_size() for one in connections)

    def cut(self) -> None:
        """Close every connection that is still open, whatever it was to send."""
        connections = list(self._server.server_state.connections)
        if connections:
            logger.warning(
                "%d connection(s) were closed: their clients did not read to the end",
                len(connections),
            )
        for connection in connections:
            connection.transport.abort()
