"""One client's connection to the mock endpoint: HTTP/1.1 in, bytes out.

Requests are handed on one at a time; those sent ahead wait, and while one waits nothing more is
read. Who answers, when, and with what is not known here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

import httptools

from headrace.bench.mock.http import error_body, whole
from headrace.bench.writer import Writer

# A prompt of a million tokens is 5 MB; images make more.
MAX_BODY_BYTES = 64 * 2**20
MAX_URL_BYTES = 8192
# What may wait in the transport for a client that reads slowly.
_UNSENT_BYTES = 256 * 1024


class Received(NamedTuple):
    """A request. Names of headers are in lower case; `chunked`: the client takes such a body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_ns: int
    keep_alive: bool
    chunked: bool


class Work(Protocol):
    """The work that answers a request."""

    def cancel(self) -> None:
        """The client is gone."""

    def resume(self) -> None:
        """The client takes bytes again."""


class Connection(asyncio.Protocol):
    """A connection that hands each request to `handle`, which may answer at once or return what
    will.
    """

    def __init__(
        self,
        handle: Callable[[Connection, Received], Work | None],
        clock_ns: Callable[[], int],
        open_ones: set[Connection],
    ) -> None:
        self._handle = handle
        self._clock_ns = clock_ns
        self._open_ones = open_ones
        self._parser = httptools.HttpRequestParser(self)
        self._ahead: deque[Received] = deque()
        self._work: Work | None = None
        self._busy = False
        self._url = bytearray()
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        self._writer = Writer(self._transport)
        self._open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or was sent away."""
        self._open_ones.discard(self)
        self._ahead.clear()
        work, self._work = self._work, None
        if work is not None:
            work.cancel()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to."""
        self.paused = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self.paused = False
        if self._work is not None:
            self._work.resume()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400, "this is not an HTTP/1.1 request")

    def on_url(self, url: bytes) -> None:
        """A part of the URL."""
        self._url += url
        if len(self._url) > MAX_URL_BYTES:
            raise ValueError(f"the URL has more than {MAX_URL_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole; a client that asks whether to go on is told so."""
        if self._headers.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            raise ValueError(f"the body has more than {MAX_BODY_BYTES} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        received = Received(
            method=self._parser.get_method().decode("latin-1"),
            path=bytes(self._url).partition(b"?")[0].decode("latin-1"),
            headers=self._headers,
            body=b"".join(self._body),
            received_ns=self._clock_ns(),
            keep_alive=self._parser.should_keep_alive(),
            chunked=self._parser.get_http_version() != "1.0",
        )
        self._url, self._headers, self._body, self._body_bytes = bytearray(), {}, [], 0
        if self._busy:
            self._ahead.append(received)
            self._transport.pause_reading()
        else:
            self._begin(received)

    def _begin(self, received: Received) -> None:
        self._busy = True
        work = self._handle(self, received)
        if self._busy:
            self._work = work

    def _refuse(self, status: int, message: str) -> None:
        body = error_body(status, message)
        self._writer.write(whole(status, body, keep_alive=False))
        self._transport.close()

    def write(self, data: bytes) -> None:
        """Send `data` now."""
        self._writer.write(data)

    def done(self, *, keep_alive: bool) -> None:
        """The reply is whole."""
        self._busy, self._work = False, None
        if not keep_alive:
            self._transport.close()
        elif self._ahead:
            self._transport.resume_reading()
            # Not from within: a long row of requests would be as deep a stack of calls.
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        if self._ahead and not self._busy and not self._transport.is_closing():
            self._begin(self._ahead.popleft())

    def close(self) -> None:
        """End the connection when all is sent."""
        self._busy, self._work = False, None
        self._transport.close()

    def reset(self) -> None:
        """End the connection as a server that has crashed: with a reset, not with a goodbye."""
        self._busy, self._work = False, None
        sock = self._transport.get_extra_info("socket")
        if sock is not None and not self._transport.is_closing():
            # With a lingering time of 0 the kernel resets. The copy is the same connection.
            with socket.socket(fileno=os.dup(sock.fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
