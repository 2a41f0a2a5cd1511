"""One request on one connection, and what is noted of it while it lasts.

While bytes arrive there is a time read, two lists appended to (the body's by the parser itself,
without a call of Python), a count of what is left of the room for it, and nothing else: JSON and
text wait until the reply is over. Nothing is made that garbage collection would look at. A request
is sent once; nothing here repeats it.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import cast

import httptools

from headrace.bench.client.memory_budget import PIECE_BYTES, MemoryBudget
from headrace.bench.client.raw import RawReply
from headrace.bench.record import ErrorClass, Failure
from headrace.bench.writer import Writer

# Servers send hundreds of bytes; proxies refuse more than 8 to 32 KiB.
MAX_HEAD_BYTES = 64 * 1024
# What is kept of a reply that was cut because it did not end: enough to see what it was.
KEPT_OF_CUT_BYTES = 2**20
# Those that somebody reads; of the others some, such as cookies, are nobody's business.
_KEPT_HEADERS = frozenset(
    {
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"location",
        b"retry-after",
        b"transfer-encoding",
        # When the mock had the request: what its scripts hold our times against.
        b"x-mock-received-ns",
        b"x-queue-time",
    }
)
# That the server has closed its side; where a system has no such event only an error is seen.
_HUNG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)
# A TLS record with an alert: what a port for https says to plain HTTP.
_TLS_ALERT = b"\x15\x03"


class Exchange:
    """The state of a request in flight; `done` gets the reply."""

    __slots__ = (
        "begun_ns",
        "bodies",
        "done",
        "headers",
        "headers_ns",
        "new_connection",
        "sent_ns",
        "status",
        "timer",
        "times_ns",
    )

    def __init__(self, begun_ns: int, done: asyncio.Future[RawReply]) -> None:
        self.begun_ns = begun_ns
        self.done = done
        self.sent_ns: int | None = None
        self.headers_ns: int | None = None
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        # One time for each of `bodies`; those of the read that is going on have none yet.
        self.bodies: list[bytes] = []
        self.times_ns: list[int] = []
        self.new_connection = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def body_bytes(self) -> int:
        """How much of the body has come."""
        return sum(map(len, self.bodies))

    def note(self, now_ns: int) -> None:
        """What the parser found in one read came at one time: one piece, however it was framed."""
        first = len(self.times_ns)
        if len(self.bodies) > first + 1:
            self.bodies[first:] = [b"".join(self.bodies[first:])]
        if len(self.bodies) > first:
            self.times_ns.append(now_ns)

    def keep_first(self, most_bytes: int) -> None:
        """Forget the pieces that would make it more."""
        kept = 0
        while kept < len(self.bodies) and most_bytes >= len(self.bodies[kept]):
            most_bytes -= len(self.bodies[kept])
            kept += 1
        del self.bodies[kept:], self.times_ns[kept:]

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
                pieces=tuple(zip(self.times_ns, self.bodies, strict=False)),
                complete=failure is None,
                failure=failure,
                new_connection=self.new_connection,
            )
        )


class ClientConnection(asyncio.Protocol):
    """A connection that carries one request at a time.

    room: of all replies that are under way on the client. on_lost: hears once that the connection
    has ended, whether it was at work or at rest.
    """

    def __init__(
        self,
        clock_ns: Callable[[], int],
        max_reply_bytes: int,
        room: MemoryBudget,
        on_lost: Callable[[ClientConnection], None],
    ) -> None:
        self._clock_ns = clock_ns
        self._max_reply_bytes = max_reply_bytes
        self._room = room
        self._on_lost = on_lost
        self._exchange: Exchange | None = None
        # The parser takes its callbacks when it is made; one is made for each reply.
        self.on_body: Callable[[bytes], None] = list[bytes]().append
        self._parser = httptools.HttpResponseParser(self)
        self._now_ns = 0
        self._begun_ns = 0
        self._may_stay = False
        self._left_bytes = 0
        self._granted_bytes = 0
        self._carried = 0
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
        self._carried += 1
        self._may_stay = False
        self.on_body = exchange.bodies.append
        self._parser = httptools.HttpResponseParser(self)
        self._left_bytes = MAX_HEAD_BYTES
        # Before the kernel takes it: where this process loses its core behind that, the server is
        # already at work, and a time read then would make it look faster than it can be.
        sent_ns = self._clock_ns()
        if self._writer.write(data):
            exchange.sent_ns = sent_ns

    def resume_writing(self) -> None:
        """The kernel has taken the last byte."""
        exchange = self._exchange
        if exchange is not None and exchange.sent_ns is None:
            exchange.sent_ns = self._clock_ns()

    @property
    def is_free(self) -> bool:
        """Whether another request can be sent: the last reply was whole, and nobody closes."""
        return not self.closed and self._exchange is None and self._may_stay

    @property
    def is_ended(self) -> bool:
        """Whether it cannot carry a request: either side has closed it, read by the loop or not.

        A server's close may lie unread in the socket for as long as the loop is busy; a request
        sent then would be reset, and count as the server's failure.
        """
        if self.closed:
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), _HUNG_UP)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """Cut the connection."""
        self.closed = True
        self._transport.abort()

    def fail(self, kind: ErrorClass, message: str) -> None:
        """End the request in work, and the connection with it: what follows would be its rest."""
        exchange = self._exchange
        self.abort()
        if exchange is not None:
            self._finish(exchange, self._clock_ns(), Failure(kind, message))

    def time_out(self, limit_s: float) -> None:
        """The time that the request in work has is over."""
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.status is None:
            self.fail("timeout", f"no reply came within {limit_s:g} s")
        else:
            came = f"{exchange.body_bytes:,} bytes of it came"
            self.fail("timeout", f"the reply was not complete after {limit_s:g} s; {came}")

    def _finish(self, exchange: Exchange, end_ns: int, failure: Failure | None = None) -> None:
        self._exchange = None
        self._room.give(self._granted_bytes)
        self._granted_bytes = 0
        exchange.finish(end_ns, failure)

    def data_received(self, data: bytes) -> None:
        """Bytes of the reply: this is the hot path."""
        now_ns = self._now_ns = self._clock_ns()
        exchange = self._exchange
        if exchange is None:
            self.abort()  # nobody asked: whatever it is, it would be taken for the next reply
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._not_understood(data, error)
            return
        times_ns = exchange.times_ns
        if len(exchange.bodies) == len(times_ns) + 1:
            times_ns.append(now_ns)
        else:
            exchange.note(now_ns)
        self._left_bytes -= len(data) + PIECE_BYTES
        if self._left_bytes < 0:
            self._need_room()

    def _not_understood(self, data: bytes, error: Exception) -> None:
        if self._exchange is None:
            self.abort()  # more than one reply came
            return
        if self._exchange.status is None and data.startswith(_TLS_ALERT):
            self.fail("protocol", "the server speaks TLS: write https:// in place of http://")
            return
        self._exchange.note(self._now_ns)
        told = error or "an upgrade"
        self.fail("protocol", f"the reply is not HTTP/1.1 ({told}): is this the port of the API?")

    def _need_room(self) -> None:
        """What was granted is used up: by a head, or by a body that may have more."""
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.status is None:
            self.fail(
                "protocol",
                f"the head of the reply is longer than {MAX_HEAD_BYTES:,} bytes: is this an API?",
            )
            return
        granted = self._room.take(self._granted_bytes, self._max_reply_bytes)
        if granted:
            self._granted_bytes += granted
            self._left_bytes += granted
            return
        came = exchange.body_bytes
        exchange.keep_first(KEPT_OF_CUT_BYTES)
        most = f"{self._max_reply_bytes:,} bytes of memory"
        if self._granted_bytes < self._max_reply_bytes:
            most = f"the others leave of {self._room.size_bytes:,} bytes of memory"
        self.fail(
            "protocol",
            f"the reply takes more than {most} and was cut after {came:,} bytes of body, of "
            "which the beginning is kept: the stream does not seem to end",
        )

    def on_message_begin(self) -> None:
        """The first byte of a reply."""
        self._begun_ns = self._now_ns
        if self._exchange is None:  # behind the reply that was asked for
            self._may_stay = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a field behind a chunked body."""
        lowered = name.lower()
        if self._exchange is not None and lowered in _KEPT_HEADERS:
            self._exchange.headers[lowered.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self._exchange is not None:
            self._exchange.status = self._parser.get_status_code()
            self._exchange.headers_ns = self._begun_ns
            self._left_bytes = 0  # the body has room of its own

    def on_message_complete(self) -> None:
        """A reply is whole, unless it only says that one will come (1xx)."""
        exchange = self._exchange
        if exchange is None:
            return
        status = exchange.status or 0
        if 100 <= status < 200 and status != 101:
            exchange.status = exchange.headers_ns = None
            exchange.headers = {}
            self._left_bytes = MAX_HEAD_BYTES
            return
        self._may_stay = self._parser.should_keep_alive() and exchange.sent_ns is not None
        self.rests_since_ns = self._now_ns
        exchange.note(self._now_ns)
        self._finish(exchange, self._now_ns)

    def eof_received(self) -> None:
        """The server says goodbye; `connection_lost` follows."""
        self.closed = True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.closed = True
        exchange = self._exchange
        if exchange is not None:
            failure = None
            if exc is not None or not _ends_with_connection(exchange):
                failure = self._lost(exchange, exc)
            self._finish(exchange, self._clock_ns(), failure)
        self._on_lost(self)

    def _lost(self, exchange: Exchange, error: Exception | None) -> Failure:
        how = "was reset" if isinstance(error, ConnectionError) else "ended"
        if error is not None and not isinstance(error, ConnectionError):
            how = f"failed ({error})"
        if exchange.status is not None:
            came = f"{exchange.body_bytes:,} bytes of the reply, which has more"
            return Failure("truncated", f"the connection {how} after {came}")
        if self._carried > 1:
            why = "it had been used before, and servers close idle connections: lower --keepalive"
        elif self._transport.get_extra_info("sslcontext") is None:
            why = "is it an HTTP server, or does it need https://?"
        else:
            why = "is it an HTTP server?"
        return Failure("truncated", f"the connection {how} before a reply came; {why}")


def _ends_with_connection(exchange: Exchange) -> bool:
    """Whether the body has no other end: no length, no pieces with a last one."""
    if exchange.status is None:
        return False
    framed = ("content-length", "transfer-encoding")
    return not any(name in exchange.headers for name in framed)
