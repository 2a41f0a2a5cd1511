"""What one client may take: sizes, time, connections; and that honest ones notice nothing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headrace.config import ServerConfig
from headrace.engine.messages import Output, Submit
from headrace.http.client_limits import (
    LINGER_S,
    MAX_HEADERS,
    MAX_TURNED_AWAY,
    MAX_URL_BYTES,
    ClientLimits,
)
from headrace.server.app import build_app
from headrace.server.state import ServerState
from headrace.text import Tokenizer
from tests.server.conftest import served_model
from tests.server.connections.raw import HEAD, JSON, RawClient, get, post, serving, until
from tests.server.mock_engine import MockEngine, output, says

SLOW_S = 0.4
POST = b"POST /v1/completions HTTP/1.1\r\n" + JSON


class Server:
    """Servers of one test, each with limits of its own."""

    def __init__(self, tokenizer: Tokenizer, ends: ExitStack) -> None:
        self._tokenizer = tokenizer
        self._ends = ends
        self.refused: list[int] = []

    def start(self, engine: MockEngine, config: ServerConfig | None = None, **limits: Any) -> str:
        state = ServerState(config=config or ServerConfig())
        self._ends.callback(state.close)
        state.set_model(served_model(engine, tokenizer=self._tokenizer))
        bounds = ClientLimits(**limits) if limits else ClientLimits.of(state.config)
        return self._ends.enter_context(serving(build_app(state), bounds, self.refused))


@pytest.fixture
def server(tokenizer: Tokenizer) -> Iterator[Server]:
    with ExitStack() as ends:
        yield Server(tokenizer, ends)


def test_limits_are_those_of_the_settings() -> None:
    config = ServerConfig(
        max_header_bytes=2000, max_body_bytes=5, max_connections=7, slow_client_timeout=3.0
    )
    assert ClientLimits.of(config) == ClientLimits(2000, 10, 7, 3.0)
    assert ClientLimits.of(ServerConfig()) == ClientLimits()


def padded(size: int) -> bytes:
    """A GET whose request line and headers have exactly `size` bytes, as they are counted."""
    # "/health" + HEAD + "A: …\r\n"
    return get("/health", "A: " + "b" * (size - len("/health") - len(HEAD) - 5))


@pytest.mark.parametrize("pieces", [None, 1000, 7])
def test_headers_up_to_the_limit(server: Server, pieces: int | None) -> None:
    url = server.start(MockEngine(says("x")), max_header_bytes=4096)
    for size, status in ((4096, 200), (4097, 431)):
        with RawClient(url) as client:
            data = padded(size)
            for at in range(0, len(data), pieces or len(data)):
                client.send(data[at : at + (pieces or len(data))])
            reply = client.reply()
            assert reply.status == status
            if status == 431:
                assert reply.code == "headers_too_large"
                assert "--max-header-bytes" in reply.json["error"]["message"]
                assert client.closed() == b""
    assert server.refused == [431]


@pytest.mark.parametrize("begun", [b"", b"A: ", b"A", b"A: b\r\nC"])
def test_headers_that_never_end_are_refused_as_they_come(server: Server, begun: bytes) -> None:
    """The parser says nothing of a header before its end; its bytes are counted all the same."""
    url = server.start(MockEngine(says("x")), max_header_bytes=8192)
    with RawClient(url) as client:
        client.send(b"GET /health HTTP/1.1\r\n" + begun if begun else b"GET /")
        client.send(b"x" * 30_000)
        assert client.reply().status == (431 if begun else 414)


def test_the_number_of_headers_and_the_url(server: Server) -> None:
    url = server.start(MockEngine(says("x")))
    with RawClient(url) as client:
        client.send(get("/health", *["A: b"] * (MAX_HEADERS - 1)))
        assert client.reply().status == 200
        client.send(get("/health?" + "x" * (MAX_URL_BYTES - len("/health?"))))
        assert client.reply().status == 200
        client.send(get("/health?" + "x" * MAX_URL_BYTES))
        assert client.reply().code == "url_too_long"


def test_the_body_limit_is_the_settings(server: Server) -> None:
    url = server.start(MockEngine(says("x")), ServerConfig(max_body_bytes=100))
    with RawClient(url) as client:
        client.send(post("/v1/completions", {"prompt": "x"}))
        assert client.reply().status == 200
        client.send(post("/v1/completions", {"prompt": "x" * 90}))
        reply = client.reply()
        assert (reply.status, reply.code) == (413, "body_too_large")
        assert "--max-body-bytes" in reply.json["error"]["message"]


def test_the_rest_of_a_refused_body_is_read_only_so_far(server: Server) -> None:
    """A client that sends on gets its reply; one that sends without end is cut."""
    url = server.start(MockEngine(says("x")), ServerConfig(max_body_bytes=100_000))
    with RawClient(url) as client:
        client.send(POST + b"Content-Length: 150000\r\n\r\n" + b"x" * 150_000)
        assert client.reply().status == 413
        client.send(get("/health"))
        assert client.reply().status == 200
    with RawClient(url) as client:
        client.send(POST + b"Content-Length: 900000000\r\n\r\n" + b"x" * 50_000)
        assert client.reply().status == 413
        for _ in range(300):
            client.send(b"x" * 10_000)
        assert client.closed() == b""


@pytest.mark.parametrize(
    "begun", [b"G", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: b"]
)
def test_headers_that_are_not_complete_in_time(server: Server, begun: bytes) -> None:
    url = server.start(MockEngine(says("x")), slow_client_s=SLOW_S)
    with RawClient(url) as client:
        begun_s = time.monotonic()
        client.send(begun)
        reply = client.reply()
        assert (reply.status, reply.code) == (408, "request_timeout")
        assert SLOW_S * 0.9 < time.monotonic() - begun_s < 5
        assert client.closed() == b""
    assert server.refused == [408]


def test_a_drip_does_not_gain_time(server: Server) -> None:
    url = server.start(MockEngine(says("x")), slow_client_s=SLOW_S)
    with RawClient(url) as client:
        for byte in b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 20:
            client.send(bytes([byte]))
            time.sleep(0.02)
            client.sock.setblocking(False)
            try:
                client.received += client.sock.recv(1000)
            except BlockingIOError:
                continue
            finally:
                client.sock.settimeout(10)
            break
        assert client.reply().status == 408


@pytest.mark.parametrize(
    "head",
    [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
     b"Transfer-Encoding: chunked\r\n\r\n1;a=b"],
)  # fmt: skip
def test_a_body_that_is_not_complete_in_time(server: Server, head: bytes) -> None:
    engine = MockEngine(says("x"))
    url = server.start(engine, slow_client_s=SLOW_S)
    with RawClient(url) as client:
        client.send(POST + head)
        reply = client.reply()
        assert (reply.status, reply.code) == (408, "request_timeout")
        assert client.closed() == b""
    assert engine.submitted == []


def test_a_refused_body_that_never_comes_is_not_waited_for(server: Server) -> None:
    config = ServerConfig(api_key=("k",), slow_client_timeout=SLOW_S)
    url = server.start(MockEngine(says("x")), config)
    with RawClient(url) as client:
        client.send(POST + b"Content-Length: 100\r\n\r\n{")
        assert client.reply().status == 401
        begun_s = time.monotonic()
        assert client.closed() == b""
        assert time.monotonic() - begun_s < SLOW_S + LINGER_S + 2


async def slow_stream(submit: Submit) -> AsyncIterator[Output]:
    """It takes half as long again as a client may."""
    for byte in b"abc":
        await asyncio.sleep(SLOW_S / 2)
        yield output(submit, [byte])
    yield output(submit, [], "length")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_honest_clients_are_never_cut(server: Server, stream: bool) -> None:
    """A reply that takes long, and rest between requests, are not slowness of the client's."""
    url = server.start(MockEngine(slow_stream), slow_client_s=SLOW_S)
    with RawClient(url) as idle, RawClient(url) as client:
        client.send(post("/v1/completions", {"prompt": "x", "stream": stream}))
        assert b"c" in client.reply().body
        time.sleep(1.25 * SLOW_S)
        for one in (client, idle):
            one.send(get("/health"))
            assert one.reply().status == 200
    assert server.refused == []


@pytest.mark.parametrize("behind", [b"G", POST + b"Content-Length: 100\r\n\r\n{"])
def test_a_slow_request_behind_a_stream_waits_for_its_turn(server: Server, behind: bytes) -> None:
    engine = MockEngine(slow_stream)
    url = server.start(engine, slow_client_s=SLOW_S)
    with RawClient(url) as client:
        client.send(post("/v1/completions", {"prompt": "x", "stream": True}) + behind)
        assert client.reply().body.endswith(b"data: [DONE]\n\n")
        assert client.reply().status == 408
        assert client.closed() == b""
    assert len(engine.finished) == 1


def test_one_connection_too_many(server: Server) -> None:
    url = server.start(MockEngine(says("x")), max_connections=3)
    with ExitStack() as ends:
        clients = [ends.enter_context(RawClient(url)) for _ in range(3)]
        for client in clients:
            client.send(get("/health"))
            assert client.reply().status == 200
        begun_s = time.monotonic()
        with RawClient(url) as more:
            more.send(get("/health"))
            reply = more.reply()
            assert (reply.status, reply.code) == (503, "too_many_connections")
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.headers["connection"] == "close"
            assert more.closed() == b""
        assert time.monotonic() - begun_s < LINGER_S, "it is not waited for"
        clients[0].sock.close()
        assert until(lambda: _served(url))
        for client in clients[1:]:
            client.send(get("/health"))
            assert client.reply().status == 200
    assert 503 in server.refused


def _served(url: str) -> bool:
    with RawClient(url) as client:
        client.send(get("/health"))
        return client.reply().status == 200


def test_a_flood_of_connections(server: Server) -> None:
    """What cannot even be told is cut, and the server goes on."""
    url = server.start(MockEngine(says("x")), max_connections=5)
    with ExitStack() as ends:
        for _ in range(5 + MAX_TURNED_AWAY + 20):
            ends.enter_context(RawClient(url))
    assert until(lambda: _answers(url))


def _answers(url: str) -> bool:
    try:
        return _served(url)
    except (AssertionError, OSError):
        return False


def test_who_does_not_read_the_last_bytes_is_cut(server: Server) -> None:
    """A reply too small to fill the server's buffer, and a client that closes nothing."""
    engine, stalled_s = MockEngine(says("y" * 250)), 0.1
    url = server.start(engine, slow_client_s=stalled_s)
    with RawClient(url, receive_buffer=1024) as client:
        lines = get("/metrics").replace(HEAD, HEAD + b"Connection: keep-alive\r\n") * 30
        client.send(lines + get("/metrics", "Connection: close"))
        time.sleep(3 * stalled_s + LINGER_S)
        with pytest.raises((ConnectionResetError, BrokenPipeError, AssertionError)):
            for _ in range(31):
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                client.reply()
            raise AssertionError
