"""One client's connection: uvicorn's HTTP/1.1 protocol, made fit for strangers.

What it adds: bounds on heads, on what is sent ahead and on time, counted while bytes arrive;
replies in order and whole, whatever comes behind them; a disconnect that reaches the request in
work also when others wait behind it; and requests with `Upgrade` answered as what they are. It
knows no routes. Times are of the loop's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from headrace.http.client_limits import (
    AHEAD_BYTES,
    LINGER_S,
    MAX_PIPELINED,
    MAX_TURNED_AWAY,
    PIECE_BYTES,
    RETRY_AFTER_S,
    ClientLimits,
)
from headrace.http.host_names import HostNames
from headrace.http.refusal import FAILED, Refusal
from headrace.http.reply_transport import ReplyTransport
from headrace.http.request_id import random_id
from headrace.http.request_meter import RefusedError, RequestMeter, has_body, head_of_body
from headrace.http.starts import Starts

logger = logging.getLogger(__name__)


class _Cycle(RequestResponseCycle):
    """uvicorn's request and reply, with JSON where an app fails before its reply or sends none."""

    async def send_500_response(self) -> None:
        """Say that the app failed; the traceback is in the log."""
        await FAILED.send(self.send, random_id())  # type: ignore[arg-type]  # uvicorn's own types


class Connection(HttpToolsProtocol):
    """A connection within `limits`. `on_refused` hears the status of each reply made here."""

    limits = ClientLimits()
    hosts: HostNames | None = None
    """The names that requests may be addressed to; None for any."""
    starts = Starts()
    """Those of all connections of a server."""
    on_refused: Callable[[int], None] = staticmethod(lambda status: None)
    new_id: Callable[[], str] = staticmethod(random_id)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._running: RequestResponseCycle | None = None  # whose reply is due
        self._reply: ReplyTransport | None = None  # what it is written to
        self._receiving = False  # a request has begun and is not complete
        self._meter = RequestMeter(self.limits.max_header_bytes, self.hosts)
        self._muted = False  # the parser is told what it knew before
        self._deaf = False  # what still comes is thrown away
        self._ending = False  # the server stops; the next reply is the last
        self._last_words: bytes | None = None  # written after the replies that are due
        self._ahead_bytes = self._discarded_bytes = 0
        self._unparsed = bytearray()
        self._stalled: asyncio.TimerHandle | None = None
        self._slow: asyncio.TimerHandle | None = None
        self._waits_anew = False  # a request began or went on, and what came does not end it
        self._lingering: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come; one too many is told so and sent away."""
        super().connection_made(transport)
        most = self.limits.max_connections
        if len(self.connections) <= most:
            self._rest()
        elif len(self.connections) > most + min(MAX_TURNED_AWAY, most):
            transport.abort()
        else:
            message = f"all {most} connections are in use; try again in {RETRY_AFTER_S} s"
            retry = {"retry-after": str(RETRY_AFTER_S)}
            self._refuse(Refusal(503, message, code="too_many_connections", headers=retry))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, by whoever; the request in work hears of it."""
        for timer in (self._stalled, self._slow, self._lingering):
            if timer is not None:
                timer.cancel()
        self._stalled = self._slow = self._lingering = None
        self._unset_keepalive_if_required()
        self._deaf = True
        self.pipeline.clear()
        self._unparsed.clear()
        if self._running is not None:
            self._disconnect(self._running)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: requests that were received are answered, then it closes."""
        self._ending = True
        super().shutdown()

    def pause_writing(self) -> None:
        """The buffer is full."""
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.slow_client_s, self._cut)
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        if self._stalled is not None and not self.transport.is_closing():
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _cut(self) -> None:
        logger.warning(
            "the connection of %s was closed: it read nothing for %g s",
            self.client,
            self.limits.slow_client_s,
        )
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self._unset_keepalive_if_required()
        if self._deaf:
            self._discard(len(data))
        elif self._unparsed:
            self._unparsed += data
            self.flow.pause_reading()
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._deaf:
            if len(self.pipeline) >= MAX_PIPELINED:
                self._unparsed += data[at:]
                break
            piece = data[at : at + PIECE_BYTES]
            try:
                self.parser.feed_data(piece)
                at += len(piece)
                if self._receiving:
                    self._meter.fed(len(piece))
            except httptools.HttpParserUpgrade as upgrade:
                at += upgrade.args[0]
                self._go_on_without_upgrade()
            except (httptools.HttpParserError, RefusedError):
                self._refuse(self._meter.refusal)
                return
        if self._deaf:
            return
        if self._waits_anew:
            self._wait_for_client()
        self._pace(len(data))
        self._rest()

    def _pace(self, size: int) -> None:
        """Read on while replies are due, within limits: else a disconnect would go unnoticed."""
        if not self.pipeline:
            self._ahead_bytes = 0
            return
        self._ahead_bytes += size
        if self._unparsed or self._ahead_bytes > AHEAD_BYTES:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    def _feed_rest(self) -> None:
        data, self._unparsed = bytes(self._unparsed), bytearray()
        if data and not self._deaf:
            self._feed(data)

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > self.limits.max_discarded_bytes:
            self.transport.abort()

    def _go_on_without_upgrade(self) -> None:
        """Nothing is upgraded here, and a server may say so by going on as before.

        The parser has stopped behind the head and skips a body; a new one is told of it.
        """
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        if self._receiving:
            self._muted = True
            self.parser.feed_data(head_of_body(self.headers))
            self._muted = False

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._muted:
            return
        super().on_message_begin()
        self._receiving = True
        self._discarded_bytes = 0
        self._meter.begin()
        self._waits_anew = True

    def on_url(self, url: bytes) -> None:
        """A piece of the URL."""
        if self._muted:
            return
        super().on_url(url)
        self._meter.url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a field after a chunked body, which nobody is shown."""
        if self._muted:
            return
        self._meter.header(name, value)
        if self._meter.in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole; the request is given to the app, or waits behind others."""
        if self._muted:
            return
        parser = self.parser
        self._meter.head_complete(parser.get_http_version(), parser.get_method(), self.headers)
        super().on_headers_complete()
        self._meter.in_head = False
        self._waits_anew = True
        if self._ending:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body; after the reply it is thrown away."""
        self._meter.spoke()
        if self.cycle.response_complete:
            self._discard(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole, unless its body was skipped for an upgrade."""
        if self.parser.should_upgrade() and has_body(self.headers):
            return
        self._receiving = False
        self._stop_waiting()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        self._reply = ReplyTransport(self.transport, self.loop, self.close_after_reply)
        cycle.transport = self._reply  # type: ignore[assignment]
        cycle.__class__ = _Cycle  # uvicorn has no other place to name it
        if cycle.waiting_for_100_continue:
            app = self._last_unless_asked(cycle, app)
        self.starts.begin(partial(super()._start_asgi_task, cycle, app))

    def _last_unless_asked(self, cycle: RequestResponseCycle, app: ASGI3Application) -> Any:
        """`app`, whose reply is the connection's last unless it asks for the body.

        The client waits with the body for a leave it does not get; whether it sends it after the
        reply, nobody can know, and what follows could be either.
        """
        keep_alive, cycle.keep_alive = cycle.keep_alive, False

        async def asked(scope: Any, receive: Any, send: Any) -> None:
            async def ask() -> Any:
                if cycle.waiting_for_100_continue:
                    cycle.keep_alive = keep_alive and not self._ending
                return await receive()

            await app(scope, ask, send)

        return asked

    def on_response_complete(self) -> None:
        """A reply is whole: the next request has its turn, or the connection rests or ends."""
        self._send_head()
        if self._last_words is not None and not self.pipeline:
            self._end(self._last_words)
        elif self._lingering is not None:
            self.server_state.total_requests += 1
        else:
            super().on_response_complete()
            if self._unparsed:
                self.loop.call_soon(self._feed_rest)

    def _send_head(self) -> None:
        """Of a reply without a body, before anything else is written."""
        if self._reply is not None:
            self._reply.send_head()

    @property
    def _due(self) -> bool:
        """Whether a reply is due that is not complete."""
        running = self._running
        return bool(self.pipeline) or (running is not None and not running.response_complete)

    def _refuse(self, refusal: Refusal) -> None:
        """Say why, after the replies that are due, and close."""
        self._deaf = True
        self._stop_waiting()
        self.on_refused(refusal.status)
        words = refusal.as_bytes(self.new_id())
        if (
            self._receiving and not self._meter.in_head
        ):  # within a body: it has a place in the order
            cycle = self.cycle
            if cycle.response_started:
                self._disconnect(cycle)
                self._end(b"")
                return
            self.pipeline = type(self.pipeline)(one for one in self.pipeline if one[0] is not cycle)
            self._disconnect(cycle)
            if cycle is self._running:
                self._end(words)
                return
        if self._due:
            self._last_words = words
        else:
            self._end(words)

    def _disconnect(self, cycle: RequestResponseCycle) -> None:
        """Tell the app that nobody waits for this reply any more."""
        if not cycle.response_complete:
            cycle.disconnected = True
        cycle.message_event.set()

    def close_after_reply(self) -> None:
        """Close, in a way that the client surely gets the reply."""
        if self._receiving or self._unparsed or self.flow.read_paused:
            self._end(b"")
        else:
            self._close()

    def _end(self, words: bytes) -> None:
        """Write the last bytes, then read for a while what the client still sends."""
        self._send_head()
        self._deaf = True
        self._last_words = None
        self._stop_waiting()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        self._unparsed.clear()
        if self._lingering is not None or self.transport.is_closing():
            return
        if words:
            self.transport.write(words)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._lingering = self.loop.call_later(LINGER_S, self._close)

    def _close(self) -> None:
        """Close once all is written; cut where the client takes nothing of it."""
        self.transport.close()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.slow_client_s, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for long after a reply."""
        if not self._receiving and not self.transport.is_closing():
            self._close()

    def _rest(self) -> None:
        """Between requests a connection may stay for as long as clients keep it in a pool."""
        if not self._receiving and not self._due and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _wait_for_client(self) -> None:
        self._stop_waiting()
        self._slow = self.loop.call_later(self.limits.slow_client_s, self._too_slow)

    def _stop_waiting(self) -> None:
        self._waits_anew = False
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _too_slow(self) -> None:
        """A request is not complete in time. Where it is not its turn, or it is this server that
        does not read, it has time again."""
        cycle = None if self._meter.in_head else self.cycle
        ahead = self._due and self._running is not cycle
        if ahead or self.flow.read_paused:
            self._wait_for_client()
            return
        part = "headers were" if self._meter.in_head else "body was"
        message = f"the request's {part} not complete after {self.limits.slow_client_s:g} s"
        self._refuse(Refusal(408, message, code="request_timeout"))
