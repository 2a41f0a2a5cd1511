"""One request on one connection, and what is noted of it while it lasts.

While bytes arrive there is a time read, a list appended to, and nothing else: JSON and text wait
until the reply is over. A request is sent once; nothing here repeats it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from headrace.bench.client.raw import RawReply
from headrace.bench.record import ErrorClass, Failure
from headrace.bench.writer import Writer


class Exchange:
    """What is known of a request so far; `done` has the reply in the end."""

    __slots__ = (
        "begun_ns",
        "body_bytes",
        "done",
        "headers",
        "headers_ns",
        "new_connection",
        "pieces",
        "sent_ns",
        "status",
        "timer",
    )

    def __init__(self, begun_ns: int, done: asyncio.Future[RawReply]) -> None:
        self.begun_ns = begun_ns
        self.done = done
        self.sent_ns: int | None = None
        self.headers_ns: int | None = None
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.pieces: list[tuple[int, bytes]] = []
        self.body_bytes = 0
        self.new_connection = False
        self.timer: asyncio.TimerHandle | None = None

    def finish(self, end_ns: int, failure: Failure | None = None) -> None:
        """The reply is over: whole, or ended by `failure`. Later calls change nothing."""
        if self.timer is not None:
            self.timer.cancel()
        if self.done.done():
            return
        self.done.set_result(
            RawReply(
                begun_ns=self.begun_ns,
                sent_ns=self.sent_ns,
                headers_ns=self.headers_ns,
                end_ns=end_ns,
                status=self.status,
                headers=self.headers,
                pieces=tuple(self.pieces),
                complete=failure is None,
                failure=failure,
                new_connection=self.new_connection,
            )
        )


class ClientConnection(asyncio.Protocol):
    """A connection that carries one request at a time.

    on_lost: hears once that the connection has ended, whether it was at work or at rest.
    """

    def __init__(
        self,
        clock_ns: Callable[[], int],
        max_reply_bytes: int,
        on_lost: Callable[[ClientConnection], None],
    ) -> None:
        self._clock_ns = clock_ns
        self._max_reply_bytes = max_reply_bytes
        self._on_lost = on_lost
        self._exchange: Exchange | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._now_ns = 0
        self._begun_ns = 0
        self._may_stay = False
        self.closed = False
        self.rests_since_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, with TLS where there is some."""
        self._transport = cast("asyncio.Transport", transport)
        # Told of every byte that the kernel has not taken yet, so that sent_ns is the last one's.
        self._transport.set_write_buffer_limits(high=0)
        self._writer = Writer(self._transport)

    def send(self, exchange: Exchange, data: bytes) -> None:
        """Send a request and note its reply in `exchange`."""
        self._exchange = exchange
        self._may_stay = False
        self._parser = httptools.HttpResponseParser(self)
        if self._writer.write(data):
            exchange.sent_ns = self._clock_ns()

    def resume_writing(self) -> None:
        """The kernel has taken the last byte."""
        exchange = self._exchange
        if exchange is not None and exchange.sent_ns is None:
            exchange.sent_ns = self._clock_ns()

    @property
    def is_free(self) -> bool:
        """Whether another request can be sent: the last reply was whole, and nobody closes."""
        return not self.closed and self._exchange is None and self._may_stay

    def abort(self) -> None:
        """Cut the connection."""
        self.closed = True
        self._transport.abort()

    def fail(self, kind: ErrorClass, message: str) -> None:
        """End the request in work, and the connection with it: what follows would be its rest."""
        exchange, self._exchange = self._exchange, None
        self.abort()
        if exchange is not None:
            exchange.finish(self._clock_ns(), Failure(kind, message))

    def data_received(self, data: bytes) -> None:
        """Bytes of the reply."""
        self._now_ns = self._clock_ns()
        if self._exchange is None:
            self.abort()  # nobody asked: whatever it is, it would be taken for the next reply
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._exchange is not None:
                self.fail("protocol", f"the reply is not HTTP/1.1: {error or 'an upgrade'}")
            else:
                self.abort()  # more than one reply came

    def on_message_begin(self) -> None:
        """The first byte of a reply."""
        self._begun_ns = self._now_ns
        if self._exchange is None:  # behind the reply that was asked for
            self._may_stay = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a field behind a chunked body."""
        if self._exchange is not None:
            self._exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self._exchange is not None:
            self._exchange.status = self._parser.get_status_code()
            self._exchange.headers_ns = self._begun_ns

    def on_body(self, body: bytes) -> None:
        """A piece of the body: this is the hot path."""
        exchange = self._exchange
        if exchange is None:
            return
        exchange.pieces.append((self._now_ns, body))
        exchange.body_bytes += len(body)
        if exchange.body_bytes > self._max_reply_bytes:
            self.fail(
                "protocol",
                f"the reply is longer than {self._max_reply_bytes} bytes and was cut: the stream "
                "has no end, or max_reply_bytes is too low",
            )

    def on_message_complete(self) -> None:
        """A reply is whole, unless it only says that one will come (1xx)."""
        exchange = self._exchange
        if exchange is None:
            return
        status = exchange.status or 0
        if 100 <= status < 200 and status != 101:
            exchange.status = exchange.headers_ns = None
            exchange.headers = {}
            return
        self._may_stay = self._parser.should_keep_alive() and exchange.sent_ns is not None
        self._exchange = None
        self.rests_since_ns = self._now_ns
        exchange.finish(self._now_ns)

    def eof_received(self) -> None:
        """The server says goodbye; `connection_lost` follows."""
        self.closed = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.closed = True
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            failure = (
                None if _ends_with_connection(exchange) and exc is None else _lost(exchange, exc)
            )
            exchange.finish(self._clock_ns(), failure)
        self._on_lost(self)


def _ends_with_connection(exchange: Exchange) -> bool:
    """Whether the body has no other end: no length, no pieces with a last one."""
    if exchange.status is None:
        return False
    framed = ("content-length", "transfer-encoding")
    return not any(name in exchange.headers for name in framed)


def _lost(exchange: Exchange, error: Exception | None) -> Failure:
    how = "was reset" if isinstance(error, ConnectionError) else "ended"
    if error is not None and not isinstance(error, ConnectionError):
        how = f"failed ({error})"
    if exchange.status is None:
        return Failure("truncated", f"the connection {how} before a reply came")
    return Failure("truncated", f"the connection {how} after {exchange.body_bytes} bytes of reply")
