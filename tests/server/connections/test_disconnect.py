"""A client that goes away frees its request in the engine at once, wherever the request is."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace.engine.messages import Output, Submit
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, output, says

Start = Callable[..., Running]
PROMPT_S = 2.0  # "promptly": far less than a generation takes, far more than a busy machine delays


async def _queued(submit: Submit) -> AsyncIterator[Output]:
    """A request that never gets its turn."""
    await asyncio.sleep(60)
    yield output(submit, [])


async def _running(submit: Submit) -> AsyncIterator[Output]:
    """A request that goes on for a minute."""
    for _ in range(6000):
        yield output(submit, [120])
        await asyncio.sleep(0.01)


def _connect(server: Running, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection with the request sent."""
    host, port = server.url.removeprefix("http://").split(":")
    payload = json.dumps(body).encode()
    sock = socket.create_connection((host, int(port)), timeout=10)
    sock.sendall(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\n\r\n".encode()
        + payload
    )
    return sock


def _until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PROMPT_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("reply", [_queued, _running], ids=["queued", "running"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x", "max_tokens": 200}),
        ("/v1/completions", {"prompt": ["x", "y", "z"], "max_tokens": 200}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        (
            "/v1/messages",
            {"model": "alias", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
        ),
        ("/api/chat", {"model": "alias", "messages": [{"role": "user", "content": "x"}]}),
        ("/api/generate", {"model": "alias", "prompt": "x"}),
    ],
    ids=["one", "three", "chat", "anthropic", "ollama", "ollama-generate"],
)
def test_going_away_cancels(
    start: Start, path: str, body: dict[str, Any], reply: Any, stream: bool, reset: bool
) -> None:
    engine = MockEngine(reply)
    server = start(engine)
    count = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
    sock = _connect(server, path, {**body, "stream": stream})
    assert _until(lambda: len(engine.submitted) == count)
    if stream and reply is _running:
        assert sock.recv(10)
    if reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
    assert _until(lambda: len(engine.cancelled) == count)
    assert engine.finished == []
    ended = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="mock-model"}'
    assert server.metrics()[ended] == count


def test_going_away_before_the_body_is_there(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    host, port = server.url.removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)))
    sock.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 100\r\n\r\n{"prompt": '
    )
    time.sleep(0.1)
    sock.close()
    gone = 'headrace:http_requests_total{endpoint="/v1/completions",status="499"}'
    assert _until(lambda: server.metrics().get(gone) == 1)
    assert engine.submitted == []


def test_others_go_on(start: Start) -> None:
    release = threading.Event()

    async def reply(submit: Submit) -> AsyncIterator[Output]:
        for byte in b"abc":
            yield output(submit, [byte])
        while not release.is_set():
            await asyncio.sleep(0.005)
        yield output(submit, [*b"d"], "length")

    engine = MockEngine(reply)
    server = start(engine)
    stays = _connect(server, "/v1/completions", {"prompt": "x", "stream": True})
    goes = _connect(server, "/v1/completions", {"prompt": "y", "stream": True})
    assert _until(lambda: len(engine.submitted) == 2)
    goes.close()
    assert _until(lambda: len(engine.cancelled) == 1)
    release.set()
    received = b""
    while b"[DONE]" not in received:
        piece = stays.recv(4096)
        assert piece
        received += piece
    assert b'"text":"d"' in received
    stays.close()


def test_a_slow_reader_gets_everything(start: Start) -> None:
    engine = MockEngine(says("x" * 200, cut=1))
    server = start(engine)
    sock = _connect(server, "/v1/completions", {"prompt": "x", "stream": True, "max_tokens": 200})
    received = b""
    while b"[DONE]" not in received:
        piece = sock.recv(512)
        assert piece
        received += piece
        time.sleep(0.001)
    assert received.count(b'"text":"x"') == 200
    sock.close()
