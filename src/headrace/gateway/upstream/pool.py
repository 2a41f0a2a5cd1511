"""A pool of connections to one origin; the most recently used is reused first.

Requests that find all connections taken wait in their order of arrival.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable

from headrace.gateway.upstream.connection import Connection, Reply
from headrace.gateway.upstream.dial import dial
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import PoolLimits, Timeouts
from headrace.gateway.upstream.origin import Origin


class Pool:
    """Connections to one origin. `tls` is for https; by default the system's certificates are
    trusted. A pool belongs to the loop it was first used in; `close` closes idle connections."""

    def __init__(
        self,
        origin: Origin,
        limits: PoolLimits | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.origin = origin
        self._limits = limits or PoolLimits()
        if tls is None and origin.scheme == "https":
            tls = ssl.create_default_context()
        self._tls = tls
        self._resting: deque[Connection] = deque()
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._all: set[Connection] = set()
        self._making = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def connections(self) -> int:
        """The number of connections, busy or idle."""
        return len(self._all)

    @property
    def resting(self) -> int:
        """The number of idle connections."""
        return len(self._resting)

    async def send(
        self, request: bytes, timeouts: Timeouts, on_sent: Callable[[], None] | None = None
    ) -> Reply:
        """Send a request and wait for the reply's head. `on_sent` is called when it goes out.

        If the provider had closed the connection meanwhile, the request is sent once more, on a
        new one. Raises UpstreamError.
        """
        connection = await self._connection(timeouts, fresh=False)
        if on_sent is not None:
            on_sent()
        reply = connection.send(request, timeouts)
        try:
            await self._head(reply)
        except UpstreamError as error:
            if not error.unsent:
                raise
            connection = await self._connection(timeouts, fresh=True)
            reply = connection.send(request, timeouts)
            await self._head(reply)
        return reply

    async def _head(self, reply: Reply) -> None:
        try:
            await reply.head()
        except asyncio.CancelledError:
            reply.abort()
            raise

    def close(self) -> None:
        """Close idle connections, and busy ones once they are free. Requests under way may still
        be sent."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        while self._resting:
            self._resting.pop().close()

    async def _connection(self, timeouts: Timeouts, *, fresh: bool) -> Connection:
        if not fresh and (rested := self._take_rested()) is not None:
            return rested
        try:
            async with asyncio.timeout(timeouts.connect_s):
                if len(self._all) + self._making >= self._limits.connections:
                    freed = await self._wait_for_free()
                    if freed is not None:
                        return freed
                return await self._connect()
        except TimeoutError:
            raise self._too_late(timeouts) from None

    def _too_late(self, timeouts: Timeouts) -> UpstreamError:
        limit_s = timeouts.connect_s or 0.0
        if len(self._all) >= self._limits.connections:
            return UpstreamError(
                "busy",
                f"all {self._limits.connections:,} connections to {self.origin} were taken for "
                f"{limit_s:g} s",
                unsent=True,
            )
        return UpstreamError(
            "connect", f"no connection to {self.origin} within {limit_s:g} s", unsent=True
        )

    def _take_rested(self) -> Connection | None:
        while self._resting:
            connection = self._resting.pop()
            if not connection.closed:
                return connection
        return None

    async def _wait_for_free(self) -> Connection | None:
        """A connection, or None for room to make one."""
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                given = waiter.result()
                if given is not None:
                    self._offer(given)
                else:
                    self._place_is_free()
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        self._making += 1
        try:
            tls = self._tls if self.origin.scheme == "https" else None
            sock = await dial(self.origin.host, self.origin.port)
            _, connection = await loop.create_connection(
                lambda: Connection(self._limits, self._offer, self._lost),
                sock=sock,
                ssl=tls,
                server_hostname=self.origin.host if tls is not None else None,
            )
        except ssl.SSLError as error:
            self._place_is_free_after_failure()
            why = error.reason or str(error)
            raise UpstreamError(
                "connect", f"no TLS connection to {self.origin}: {why}", unsent=True
            ) from error
        except OSError as error:
            self._place_is_free_after_failure()
            why = error.strerror or str(error)
            raise UpstreamError(
                "connect", f"no connection to {self.origin}: {why}", unsent=True
            ) from error
        except asyncio.CancelledError:
            self._place_is_free_after_failure()
            raise
        finally:
            self._making -= 1
        self._all.add(connection)
        return connection

    def _offer(self, connection: Connection) -> None:
        """Give a free connection to the longest waiter, or keep it."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if self._closed:
            connection.close()
            return
        self._resting.append(connection)
        if self._sweeper is None:
            loop = asyncio.get_running_loop()
            self._sweeper = loop.call_later(self._limits.rest_s, self._sweep)

    def _lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._resting:
            self._resting.remove(connection)
        self._place_is_free()

    def _place_is_free_after_failure(self) -> None:
        # `_connect`'s finally frees the place, a moment after this.
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._place_is_free)

    def _place_is_free(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _sweep(self) -> None:
        """Close connections that were idle for too long; the first has been idle the longest."""
        loop = asyncio.get_running_loop()
        self._sweeper = None
        now_s = loop.time()
        while self._resting and now_s - self._resting[0].rests_since_s >= self._limits.rest_s:
            self._resting.popleft().close()
        if self._resting:
            left_s = self._limits.rest_s - (now_s - self._resting[0].rests_since_s)
            self._sweeper = loop.call_later(max(left_s, 0.05), self._sweep)
