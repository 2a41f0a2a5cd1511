"""One connection to a provider, which carries one exchange at a time.

The body is passed on as it arrives. Reading stops while more than `held_bytes` of it wait for the
consumer, so that a slow client costs the provider's patience and not the gateway's memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from headrace.gateway.upstream.errors import Problem, UpstreamError
from headrace.gateway.upstream.limits import PoolLimits, Timeouts

# A TLS record with an alert: how an https port answers plain HTTP.
_TLS_ALERT = b"\x15\x03"


class Reply:
    """A provider's reply: the head first, then pieces until b"".

    Only one task may wait for it. Its holder reads it to the end or calls `abort`.
    """

    __slots__ = (
        "_connection",
        "_error",
        "_held_bytes",
        "_pieces",
        "_waiter",
        "complete",
        "headers",
        "status",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: UpstreamError | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False

    async def head(self) -> int:
        """The status, once `headers` are complete too. Raises UpstreamError."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self.status

    async def piece(self) -> bytes:
        """The next part of the body, b"" at its end. Raises UpstreamError after what arrived."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.complete:
                return b""
            await self._wait()
        if len(self._pieces) == 1:
            piece = self._pieces.popleft()
        else:
            piece = b"".join(self._pieces)
            self._pieces.clear()
        self._held_bytes = 0
        if self._connection is not None:
            self._connection.go_on_reading()
        return piece

    async def body(self, most_bytes: int) -> bytes:
        """The whole body. Raises UpstreamError, also if it exceeds `most_bytes`."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.piece():
            size += len(piece)
            if size > most_bytes:
                self.abort()
                raise UpstreamError(
                    "too_large", f"the reply has more than {most_bytes:,} bytes, which is the limit"
                )
            pieces.append(piece)
        return b"".join(pieces)

    def abort(self) -> None:
        """Discard the rest: the connection is cut unless the reply was already whole."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def limit_idle(self, idle_s: float | None) -> None:
        """Set the longest pause between two pieces from now on."""
        if self._connection is not None:
            self._connection.limit_idle(idle_s)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # The methods below are for the connection only.

    def wake(self) -> None:
        """Wake the waiting task, as something has changed."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def took(self, piece: bytes) -> int:
        """Add a piece that arrived; return the bytes that wait now."""
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        return self._held_bytes

    def finish(self, error: UpstreamError | None = None) -> None:
        """End the reply."""
        self._connection = None
        self.complete = error is None
        self._error = error
        self.wake()


class Connection(asyncio.Protocol):
    """One connection. `on_free` is called once after each whole reply, when another request may be
    sent; `on_lost` is called once, when the connection has ended."""

    def __init__(
        self,
        limits: PoolLimits,
        on_free: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._limits = limits
        self._on_free = on_free
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reply: Reply | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._timeouts = Timeouts()
        self._idle_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._moved_s = 0.0
        self._head_left = 0
        self._reading = True
        self._framed = False
        self._exchanges = 0
        self._is_whole = False
        self._has_more = False
        self.closed = False
        self.rests_since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, including TLS."""
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, timeouts: Timeouts) -> Reply:
        """Send a request, head and body; the connection must be free."""
        reply = self._reply = Reply(self)
        self._parser = httptools.HttpResponseParser(self)
        self._timeouts = timeouts
        self._idle_s = timeouts.idle_s
        self._head_left = self._limits.head_bytes
        self._framed = False
        self._exchanges += 1
        self._moved_s = self._loop.time()
        self._arm()
        self._transport.write(request)
        return reply

    @property
    def used_before(self) -> bool:
        """Whether it has carried an exchange: the provider may have closed it since."""
        return self._exchanges > 1

    def abort(self) -> None:
        """Cut it and its exchange."""
        self.closed = True
        self._stop_timer()
        self._transport.abort()

    def close(self) -> None:
        """Close it between two exchanges."""
        self.closed = True
        self._transport.close()

    def go_on_reading(self) -> None:
        """Read again, as there is room."""
        if not self._reading and not self.closed:
            self._reading = True
            self._moved_s = self._loop.time()
            self._transport.resume_reading()

    def limit_idle(self, idle_s: float | None) -> None:
        """Replace the exchange's own limit, counted from what came last."""
        self._idle_s = idle_s
        self._stop_timer()
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the reply."""
        reply = self._reply
        if reply is None:
            self.abort()  # unrequested: they would be taken for the next reply
            return
        self._moved_s = self._loop.time()
        if not reply.status:
            self._head_left -= len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._not_understood(data, error)
            return
        if self._is_whole:
            self._is_whole = False
            if self._has_more:
                self.abort()  # it would be taken for the next reply
            elif not self.closed:
                self._on_free(self)
            return
        if self._reply is reply:
            if not reply.status and self._head_left < 0:
                self._fail(
                    "protocol", f"the reply's head is longer than {self._limits.head_bytes:,} bytes"
                )
                return
            if self._timer is None:  # nothing is awaited of a reply that is whole with its head
                self._arm()
            reply.wake()

    def _not_understood(self, data: bytes, error: Exception) -> None:
        reply = self._reply
        self._is_whole = False
        if reply is None:
            self.abort()  # more came than was requested
        elif not reply.status and data.startswith(_TLS_ALERT):
            self._fail("protocol", "the provider speaks TLS: use https:// in its base_url")
        else:
            self._fail("protocol", f"the reply is not HTTP/1.1 ({error or 'an upgrade'})")

    def on_message_begin(self) -> None:
        """The first byte of a reply; after a whole one it was not requested."""
        self._has_more = self._is_whole

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer of a chunked body."""
        reply = self._reply
        if reply is None or reply.status:
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        before = reply.headers.get(key)
        reply.headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        """The head is complete."""
        reply = self._reply
        if reply is None:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            reply.headers.clear()
            return
        self._framed = "content-length" in reply.headers or "transfer-encoding" in reply.headers
        reply.status = status
        self._stop_timer()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        reply = self._reply
        if reply is None:
            return
        if reply.took(body) > self._limits.held_bytes and self._reading:
            self._reading = False
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """A reply is complete, unless it was only interim (1xx)."""
        reply = self._reply
        if reply is None or not reply.status:
            return
        self._reply = None
        self._stop_timer()
        self.rests_since_s = self._moved_s
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        if self.closed or not self._parser.should_keep_alive():
            self.close()
        self._is_whole = True
        reply.finish()

    def eof_received(self) -> None:
        """The provider closes; `connection_lost` follows."""
        self.closed = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.closed = True
        self._stop_timer()
        reply, self._reply = self._reply, None
        if reply is not None:
            if exc is None and reply.status and not self._framed:
                reply.finish()  # the end of the connection is the end of such a body
            else:
                reply.finish(self._lost(reply, exc))
        self._on_lost(self)

    def _lost(self, reply: Reply, error: Exception | None) -> UpstreamError:
        how = "was reset" if isinstance(error, ConnectionError) else "ended"
        if error is not None and not isinstance(error, ConnectionError):
            how = f"failed ({error})"
        if reply.status:
            return UpstreamError("cut", f"the connection {how} in the middle of the reply")
        # A provider that closes an idle connection has not read what came after that.
        unsent = self.used_before and error is None
        return UpstreamError("cut", f"the connection {how} before a reply came", unsent=unsent)

    def _fail(self, problem: Problem, message: str) -> None:
        reply, self._reply = self._reply, None
        self.abort()
        if reply is not None:
            reply.finish(UpstreamError(problem, message))

    def _arm(self) -> None:
        limit_s = self._limit_s()
        if limit_s is not None:
            self._timer = self._loop.call_later(limit_s, self._look_at_clock)

    def _limit_s(self) -> float | None:
        reply = self._reply
        waiting = reply is None or not reply.status
        return self._timeouts.first_byte_s if waiting else self._idle_s

    def _look_at_clock(self) -> None:
        """Check the limit; there is one timer per exchange, which is set again if time is left."""
        reply = self._reply
        limit_s = self._limit_s()
        if reply is None:
            return
        if limit_s is None:
            self._timer = self._loop.call_later(60.0, self._look_at_clock)
            return
        # While the consumer does not read, the provider is not late.
        since_s = self._loop.time() - self._moved_s if self._reading else 0.0
        if since_s + 1e-3 < limit_s:
            self._timer = self._loop.call_later(limit_s - since_s, self._look_at_clock)
        elif reply.status:
            self._fail("timeout", f"no more of the reply came for {limit_s:g} s")
        else:
            self._fail("timeout", f"no reply came within {limit_s:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
