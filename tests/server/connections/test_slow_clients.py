"""A client that does not read what it asked for holds little, not for ever, and nobody else up."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator

import pytest

from headrace.engine.messages import Output, Submit
from headrace.http.client_limits import ClientLimits
from headrace.http.listen import listen
from headrace.http.server import HttpServer
from headrace.server.app import build_app
from headrace.server.state import ServerState
from headrace.text import Tokenizer
from tests.server.conftest import served_model
from tests.server.mock_engine import MockEngine, output
from tests.waiting import until

PATIENCE_S = 60.0
STALLED_S = 0.3


async def endless(submit: Submit) -> AsyncIterator[Output]:
    """Much text, for as long as it is asked for."""
    while True:
        yield output(submit, [*b"x" * 2000])
        await asyncio.sleep(0)


def ask(port: int, *, stream: bool = True) -> socket.socket:
    """A connection with a request sent and little room for the reply, which nobody reads."""
    body = json.dumps({"prompt": "x", "stream": stream, "max_tokens": 200}).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    return sock


def started(
    engine: MockEngine, tokenizer: Tokenizer, stalled_reader_s: float
) -> tuple[HttpServer, ServerState, int]:
    state = ServerState()
    state.set_model(served_model(engine, tokenizer=tokenizer))
    sock = listen("127.0.0.1", 0)
    http = HttpServer(
        build_app(state), sock, grace_s=1, limits=ClientLimits(slow_client_s=stalled_reader_s)
    )
    http.start()
    return http, state, sock.getsockname()[1]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.load
def test_who_reads_nothing_is_cut_after_a_while(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    engine = MockEngine(endless)

    async def main() -> None:
        http, state, port = started(engine, tokenizer, STALLED_S)
        sock = ask(port)
        await until(lambda: len(engine.cancelled) == 1, "the engine cancels the request")
        http.stop()
        assert await http.ended(PATIENCE_S)
        state.close()
        sock.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    (complaint,) = complaints(caplog)
    assert "was closed: it read nothing for 0.3 s" in complaint


@pytest.mark.load
def test_who_reads_slowly_is_not_cut(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    """More than STALLED_S passes in all, never between two reads of a full buffer."""
    engine = MockEngine(endless)

    async def main() -> None:
        http, state, port = started(engine, tokenizer, STALLED_S)
        sock = ask(port)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while loop.time() < begun_s + 3 * STALLED_S:
            assert await loop.sock_recv(sock, 2**20)
            await asyncio.sleep(0.001)
        assert engine.cancelled == []
        sock.close()
        await until(lambda: len(engine.cancelled) == 1, "the engine cancels the request")
        http.stop()
        assert await http.ended(PATIENCE_S)
        state.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert complaints(caplog) == []


@pytest.mark.load
def test_at_the_end_the_rest_is_cut_with_one_line(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    engine = MockEngine(endless)

    async def main() -> None:
        http, state, port = started(engine, tokenizer, 60.0)
        socks = [ask(port) for _ in range(3)]
        await until(lambda: len(engine.submitted) == 3, "three requests at the engine")
        http.stop()
        assert not await http.ended(0.5)
        http.cut()
        assert await http.ended(PATIENCE_S)
        assert len(engine.cancelled) == 3
        state.close()
        for sock in socks:
            sock.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert complaints(caplog) == [
        "3 connection(s) were closed: their clients did not read to the end"
    ]
