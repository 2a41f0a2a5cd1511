"""One connection to a provider, which carries one exchange at a time.

The body is handed on as it comes. Reading stops while more than `held_bytes` of it wait for
somebody to take them, so a slow client costs a provider's patience and not our memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from headrace.gateway.upstream.errors import Problem, UpstreamError
from headrace.gateway.upstream.limits import PoolLimits, Timeouts

# A TLS record with an alert: what a port for https says to plain HTTP.
_TLS_ALERT = b"\x15\x03"


class Reply:
    """A provider's reply: the head first, then pieces until b"".

    Exactly one task may wait for it. Whoever holds it reads it to the end or calls `abort`.
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
        """The status, once `headers` are there too. Raises UpstreamError."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self.status

    async def piece(self) -> bytes:
        """What came next of the body, b"" at its end. Raises UpstreamError, after what came."""
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
        """All of the body. Raises UpstreamError, also for one that is larger than `most_bytes`."""
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
        """Nobody wants the rest: the connection is cut, unless the reply was whole already."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def limit_idle(self, idle_s: float | None) -> None:
        """From now on so long may pass between two pieces."""
        if self._connection is not None:
            self._connection.limit_idle(idle_s)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # What follows is for the connection alone.

    def wake(self) -> None:
        """Something has changed."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def took(self, piece: bytes) -> int:
        """A piece has come; how many bytes wait now."""
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        return self._held_bytes

    def finish(self, error: UpstreamError | None = None) -> None:
        """No more will come."""
        self._connection = None
        self.complete = error is None
        self._error = error
        self.wake()


class Connection(asyncio.Protocol):
    """on_free: a reply was whole and another request may be sent. on_lost: it has ended; each is
    called once for each exchange, respectively once."""

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
        """Connected, with TLS where there is some."""
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
        """Whether it has carried an exchange: the other side may have closed it meanwhile."""
        return self._exchanges > 1

    def abort(self) -> None:
        """Cut it, and the exchange on it."""
        self.closed = True
        self._stop_timer()
        self._transport.abort()

    def close(self) -> None:
        """End it between two exchanges."""
        self.closed = True
        self._transport.close()

    def go_on_reading(self) -> None:
        """There is room again."""
        if not self._reading and not self.closed:
            self._reading = True
            self._moved_s = self._loop.time()
            self._transport.resume_reading()

    def limit_idle(self, idle_s: float | None) -> None:
        """In place of the exchange's own, counted from what came last."""
        self._idle_s = idle_s
        self._stop_timer()
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Bytes of the reply."""
        reply = self._reply
        if reply is None:
            self.abort()  # nobody asked: it would be taken for the next reply
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
            if self._timer is None:  # of a reply that comes whole with its head nothing is awaited
                self._arm()
            reply.wake()

    def _not_understood(self, data: bytes, error: Exception) -> None:
        reply = self._reply
        self._is_whole = False
        if reply is None:
            self.abort()  # more came than was asked for
        elif not reply.status and data.startswith(_TLS_ALERT):
            self._fail("protocol", "the provider speaks TLS: write https:// in its base_url")
        else:
            self._fail("protocol", f"the reply is not HTTP/1.1 ({error or 'an upgrade'})")

    def on_message_begin(self) -> None:
        """The first byte of a reply; behind one that was whole nobody asked for it."""
        self._has_more = self._is_whole

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a field behind a chunked body."""
        reply = self._reply
        if reply is None or reply.status:
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        before = reply.headers.get(key)
        reply.headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        """The head is whole."""
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
        """A reply is whole, unless it only said that one will come (1xx)."""
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
        """The provider says goodbye; `connection_lost` follows."""
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
        # A provider that closes what rests has not looked at what came after that.
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
        """One timer an exchange: it looks when the time would be over, and sleeps on if not."""
        reply = self._reply
        limit_s = self._limit_s()
        if reply is None:
            return
        if limit_s is None:
            self._timer = self._loop.call_later(60.0, self._look_at_clock)
            return
        # While nobody takes what came, the provider is not the one who is late.
        since_s = self._loop.time() - self._moved_s if self._reading else 0.0
        if since_s + 1e-3 < limit_s:
            self._timer = self._loop.call_later(limit_s - since_s, self._look_at_clock)
        elif reply.status:
            self._fail("timeout", f"nothing more of the reply came for {limit_s:g} s")
        else:
            self._fail("timeout", f"no reply came within {limit_s:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
