"""`serve` as a process: signals, engines and clients that go away, and what is said then."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from headrace.config import EngineConfig, ServerConfig
from headrace.server import run
from tests.server.serve_process import Process


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_a_stream_end(
    started: Callable[..., Process], model: Path, number: int
) -> None:
    process = started(model).wait_ready()
    body = {"prompt": "Once", "max_tokens": 100, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{process.url}/v1/completions", json=body, timeout=30) as reply:
        lines = reply.iter_lines()
        next(lines)
        process.process.send_signal(number)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    code, err = process.end(number)
    assert code == 0
    assert "Traceback" not in err


@pytest.mark.process
def test_a_second_signal_ends_streams_with_an_error(
    started: Callable[..., Process], model: Path
) -> None:
    process = started(model, max_model_len=512).wait_ready()
    body = {"prompt": ["Once"] * 60, "max_tokens": 500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{process.url}/v1/completions", json=body, timeout=30) as reply:
        lines = reply.iter_lines()
        next(lines)
        process.process.send_signal(signal.SIGTERM)
        # Another kind than the first: two of one kind in a moment are one.
        process.process.send_signal(signal.SIGINT)
        rest = [line for line in lines if line]
    assert "engine_dead" in rest[-1]
    code, err = process.end()
    assert code == 0
    assert "Traceback" not in err


@pytest.mark.process
def test_a_client_that_never_reads_is_cut_at_the_end(
    started: Callable[..., Process], model: Path
) -> None:
    process = started(model, backend="cpu").wait_ready()
    fields = {"max_tokens": 500, "ignore_eos": True, "stream": True, "logprobs": 20}
    body = json.dumps({"prompt": ["Once"] * 60, **fields}).encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", int(process.url.rpartition(":")[2])))
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        assert _generates(process, 10_000)
        process.process.send_signal(signal.SIGTERM)
        code, err = process.end(signal.SIGINT)
    assert code == 0
    complaints = [line for line in err.splitlines() if " INFO " not in line]
    assert len(complaints) == 2, err
    assert "1 request is still open" in complaints[0]
    assert "a second signal came" in complaints[0]
    assert "1 connection(s) were closed" in complaints[1]


def _generates(process: Process, num_tokens: int) -> bool:
    """Whether so many tokens are there soon: more than the buffers on the way take."""
    for _ in range(500):
        text = httpx.get(f"{process.url}/metrics").text
        (line,) = re.findall(r"^vllm:generation_tokens_total.* ([\d.e+]+)$", text, re.M)
        if float(line) >= num_tokens:
            return True
        time.sleep(0.05)
    return False


def test_an_interrupt_before_the_loop_runs_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "Listener", interrupted)
    assert run.serve(EngineConfig(), ServerConfig()) == 130


@pytest.mark.process
def test_a_signal_while_loading(started: Callable[..., Process], model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = started(model, port=port)
    for _ in range(2000):
        try:
            health = httpx.get(f"http://127.0.0.1:{port}/health", timeout=30)
            break
        except httpx.ConnectError:
            time.sleep(0.005)
    assert health.json()["status"] in ("loading", "ok")
    code, err = process.end()
    assert code == 0
    assert "Traceback" not in err
