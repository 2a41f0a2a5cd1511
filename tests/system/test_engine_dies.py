"""`headrace serve` whose engine is killed or stopped: what clients, /health and /ready are told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serve_process import Process, spawn
from tests.tiny import write_tiny_gguf
from tests.waiting import PATIENCE_S, children, wait_until

pytestmark = pytest.mark.process

STREAMS = 16
BODY = {"prompt": "Once", "ignore_eos": True, "seed": 7, "return_token_ids": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model"), family="qwen3")


@pytest.fixture
def started() -> Iterator[Callable[..., Process]]:
    """`started(...)` spawns servers that end with the test."""
    processes: list[Process] = []

    def start(*args: Any, **settings: Any) -> Process:
        processes.append(spawn(*args, **settings).wait_ready())
        return processes[-1]

    yield start
    for process in processes:
        process.end()


def engine_pid(process: Process) -> int:
    """Of the one child of the server."""
    (child,) = children(process.process.pid)
    return child


def health(process: Process, path: str = "/health") -> tuple[int, dict[str, Any]]:
    reply = httpx.get(f"{process.url}{path}", timeout=10)
    return reply.status_code, reply.json()


def serves_again(process: Process, restarts: int) -> None:
    def serves() -> bool:
        status, answer = health(process)
        return status == 200 and answer.get("restarts", 0) >= restarts

    wait_until(serves, lambda: f"serves again: {health(process)}")


async def events(
    client: httpx.AsyncClient, index: int, begun: asyncio.Barrier, max_tokens: int
) -> list[str]:
    """The events of a stream that is under way when all are."""
    body = BODY | {"prompt": f"{index}", "max_tokens": max_tokens, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200
        lines = reply.aiter_lines()
        seen = [await anext(lines)]
        await begun.wait()
        return seen + [line async for line in lines if line]


async def streams_while(
    process: Process, then: Callable[[], None], max_tokens: int = 480
) -> list[list[str]]:
    begun = asyncio.Barrier(STREAMS + 1)
    limits = httpx.Limits(max_connections=STREAMS)
    async with httpx.AsyncClient(base_url=process.url, timeout=60, limits=limits) as client:
        reading = [
            asyncio.ensure_future(events(client, i, begun, max_tokens)) for i in range(STREAMS)
        ]
        await begun.wait()
        then()
        return await asyncio.gather(*reading)


def last_error(lines: list[str]) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))["error"]
    return error


async def test_a_killed_engine_comes_back(started: Callable[..., Process], model: Path) -> None:
    process = started(model)
    before = process.post("/v1/completions", **BODY).json()["choices"]
    during: list[Any] = []

    def kill() -> None:
        # One client, and no word asked twice: an engine of a toy is back within a second.
        with httpx.Client(base_url=process.url) as client:
            client.get("/health")
            os.kill(engine_pid(process), signal.SIGKILL)
            deadline_s = time.monotonic() + PATIENCE_S
            # How it ended is known a moment after it is gone.
            while "SIGKILL" not in (told := client.get("/health")).text:
                assert time.monotonic() < deadline_s, told.text
            ready = client.get("/ready")
            during.append(client.post("/v1/completions", json=BODY))
        during.extend((one.status_code, one.json()) for one in (told, ready))

    for lines in await streams_while(process, lambda: None, max_tokens=40):
        assert lines[-1] == "data: [DONE]"
    for lines in await streams_while(process, kill):
        error = last_error(lines)
        assert (error["code"], "SIGKILL" in error["message"]) == ("engine_dead", True)
    refused, (health_status, body), (ready_status, ready) = during
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_restarting")
    assert int(refused.headers["retry-after"]) >= 1
    assert (health_status, body["status"], ready_status) == (503, "restarting", 503)
    assert ready["status"] == "restarting"
    assert "SIGKILL" in body["failure"]
    assert body["retry_after_s"] >= 0
    serves_again(process, 1)
    status, ready = health(process, "/ready")
    assert (status, ready["status"], ready["restarts"]) == (200, "ready", 1)
    assert "SIGKILL" in ready["failure"]
    assert process.post("/v1/completions", **BODY).json()["choices"] == before
    metrics = httpx.get(f"{process.url}/metrics").text
    assert 'headrace:engine_restarts_total{reason="died"} 1.0' in metrics
    code, err = process.end()
    assert code == 0
    assert "Traceback" not in err
    assert "the engine died: the engine process ended with exit code -9 (SIGKILL)" in err
    assert "restart 1 of 5 in a row" in err
    assert "the engine serves again, " in err


async def test_a_stopped_engine_is_replaced(started: Callable[..., Process], model: Path) -> None:
    # Longer than a busy machine keeps a process from its turn, or from its imports.
    process = started(model, engine_stall_timeout=5.0)
    pid = engine_pid(process)
    for lines in await streams_while(process, lambda: os.kill(pid, signal.SIGSTOP)):
        assert "--engine-stall-timeout" in last_error(lines)["message"]
    serves_again(process, 1)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the engine before")
    assert engine_pid(process) != pid
    assert process.post("/v1/completions", **BODY).status_code == 200


def test_an_engine_that_is_killed_again_and_again_is_given_up(
    started: Callable[..., Process], model: Path
) -> None:
    process = started(model, max_engine_restarts=2)
    for restarts in range(3):
        serves_again(process, restarts)
        os.kill(engine_pid(process), signal.SIGKILL)
        wait_until(lambda: health(process)[0] != 200, "another status than 200")

    def is_dead() -> bool:
        """For a moment its pipe has ended and how it died is not known yet."""
        said = health(process)[1]
        return said["status"] == "dead" and "SIGKILL" in said["failure"]

    wait_until(is_dead, lambda: f"a dead engine: {health(process)}")
    answer = health(process)
    assert answer[0] == 503
    assert answer[1]["restarts"] == 2
    assert answer[1]["error"]["code"] == "engine_dead"
    assert "retry_after_s" not in answer[1]
    refused = process.post("/v1/completions", **BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_dead")
    assert "retry-after" not in refused.headers
    assert "SIGKILL" in refused.json()["error"]["message"]
    assert health(process, "/ready")[1]["status"] == "dead"
    code, err = process.end()
    assert code == 0
    assert err.count("CRITICAL") == 1
    assert "given up after 2 restarts in a row" in err
    assert "503 until POST /admin/restart_engine" in err


def test_no_process_is_left_behind(started: Callable[..., Process], model: Path) -> None:
    process = started(model)
    os.kill(engine_pid(process), signal.SIGKILL)
    serves_again(process, 1)
    last = engine_pid(process)
    process.end()
    assert isinstance(process.process, subprocess.Popen)
    assert not Path(f"/proc/{last}").exists()


async def test_an_administrator_restarts_it(started: Callable[..., Process], model: Path) -> None:
    process = started(model, admin_api_key="sk-admin", max_engine_restarts=0)
    before = process.post("/v1/completions", **BODY).json()["choices"]
    replies: list[httpx.Response] = []

    def restart() -> None:
        headers = {"Authorization": "Bearer sk-admin"}
        replies.append(httpx.post(f"{process.url}/admin/restart_engine", headers=headers))

    pid = engine_pid(process)
    for lines in await streams_while(process, restart):
        error = last_error(lines)
        assert (error["code"], "administrator" in error["message"]) == ("engine_dead", True)
    assert replies[0].status_code == 200, replies[0].text
    assert replies[0].json()["status"] in ("restarting", "ready")
    serves_again(process, 1)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the engine before")
    assert process.post("/v1/completions", **BODY).json()["choices"] == before
    metrics = httpx.get(f"{process.url}/metrics").text
    assert 'headrace:engine_restarts_total{reason="requested"} 1.0' in metrics
    code, err = process.end()
    assert (code, "Traceback" in err) == (0, False)
