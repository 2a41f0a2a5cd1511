"""Clients that speak HTTP byte by byte, for what no HTTP library would send."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import uvloop
from starlette.types import ASGIApp

from headrace.http.client_limits import ClientLimits
from headrace.http.listen import listen
from headrace.http.server import HttpServer

PATIENCE_S = 10.0
HEAD = b"Host: localhost\r\n"
JSON = HEAD + b"Content-Type: application/json\r\n"


class RawReply(NamedTuple):
    """A reply as it came. body: chunks joined."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The error's code."""
        code: str | None = self.json["error"]["code"]
        return code


class RawClient:
    """A connection to `url`."""

    def __init__(self, url: str, *, receive_buffer: int | None = None) -> None:
        parts = urlsplit(url)
        self.sock = socket.socket()
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect((parts.hostname, parts.port))
        self.received = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> RawClient:
        """Send; a connection the server has closed meanwhile is no failure."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(data)
        return self

    def read_more(self) -> bool:
        """Whether more came before the end."""
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            return False
        self.received += data
        return bool(data)

    def until(self, mark: bytes) -> bytes:
        """Everything up to and with `mark`."""
        while mark not in self.received:
            assert self.read_more(), self.received
        at = self.received.index(mark) + len(mark)
        taken, self.received = self.received[:at], self.received[at:]
        return taken

    def reply(self, *, head_only: bool = False) -> RawReply:
        """The next whole reply."""
        head = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", head[0])
        assert match, head
        status = int(match[1])
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        if status < 200 or head_only:
            return RawReply(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return RawReply(status, headers, b"".join(self._chunks()))
        size = int(headers["content-length"])
        while len(self.received) < size:
            assert self.read_more(), self.received
        body, self.received = self.received[:size], self.received[size:]
        return RawReply(status, headers, body)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.until(b"\r\n"), 16):
            while len(self.received) < size + 2:
                assert self.read_more(), self.received
            yield self.received[:size]
            assert self.received[size : size + 2] == b"\r\n"
            self.received = self.received[size + 2 :]
        assert self.until(b"\r\n") == b"\r\n"

    def closed(self) -> bytes:
        """What comes until the server closes; fails when it does not."""
        while self.read_more():
            pass
        return self.received


def post(path: str, body: Any, *headers: str) -> bytes:
    """A POST as bytes."""
    payload = json.dumps(body).encode()
    lines = "".join(f"{line}\r\n" for line in headers).encode()
    return (
        f"POST {path} HTTP/1.1\r\n".encode()
        + JSON
        + lines
        + b"Content-Length: %d\r\n\r\n" % len(payload)
        + payload
    )


def get(path: str, *headers: str) -> bytes:
    """A GET as bytes."""
    lines = "".join(f"{line}\r\n" for line in headers).encode()
    return f"GET {path} HTTP/1.1\r\n".encode() + HEAD + lines + b"\r\n"


def until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


@contextmanager
def serving(
    app: ASGIApp, limits: ClientLimits, refused: list[int] | None = None, **options: Any
) -> Iterator[str]:
    """A server of its own, with limits of its own; its URL."""
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    ready = threading.Event()
    parts: list[Any] = []

    async def main() -> None:
        hear = None if refused is None else refused.append
        http = HttpServer(app, sock, grace_s=1, limits=limits, on_refused=hear, **options)
        http.start()
        parts.extend([http, asyncio.get_running_loop()])
        ready.set()
        await http.ended()

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        http, loop = parts
        loop.call_soon_threadsafe(http.stop)
        loop.call_soon_threadsafe(loop.call_later, 0.3, http.cut)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
