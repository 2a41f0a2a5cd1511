"""SIGTERM under load: whatever was accepted is delivered whole, and is what it would have been."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serve_process import Process, spawn
from tests.tiny import write_tiny_gguf

pytestmark = pytest.mark.process

STREAMS, WHOLE = 40, 24
SETTINGS = {"max_num_seqs": 16, "max_model_len": 256}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model"), family="qwen3")


def body(index: int) -> dict[str, Any]:
    return {
        "prompt": f"{index} " * (1 + index % 20),
        "max_tokens": 20 + index,
        "seed": index,
        "logprobs": index % 3,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": index < STREAMS,
    }


async def answer(client: httpx.AsyncClient, index: int) -> list[Any]:
    """Tokens, log probabilities and finish reason of a reply, whole or streamed."""
    reply = await client.post("/v1/completions", json=body(index))
    assert reply.status_code == 200, reply.text
    if index >= STREAMS:
        (choice,) = reply.json()["choices"]
        return [choice["token_ids"], choice["logprobs"], choice["text"], choice["finish_reason"]]
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return [
        [token for one in choices for token in one["token_ids"] or ()],
        joined([one["logprobs"] for one in choices if one["logprobs"]]),
        "".join(one["text"] for one in choices),
        choices[-1]["finish_reason"],
    ]


def joined(logprobs: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """Of all events of a stream, whatever tokens came in one: drafts hang on times."""
    return (
        {name: [value for each in logprobs for value in each[name]] for name in logprobs[0]}
        if logprobs
        else {}
    )


async def answers(process: Process, *, end: bool) -> list[list[Any]]:
    count = STREAMS + WHOLE
    limits = httpx.Limits(max_connections=count + 2)
    async with httpx.AsyncClient(base_url=process.url, timeout=60, limits=limits) as client:
        asked = [asyncio.ensure_future(answer(client, index)) for index in range(count)]
        if end:
            await under_way(client, count)
            process.process.send_signal(signal.SIGTERM)
            await refuses(client)
        return await asyncio.gather(*asked)


async def under_way(client: httpx.AsyncClient, count: int) -> None:
    """Wait until all are accepted, some running and most waiting."""
    running, others = (
        "vllm:num_requests_running",
        ("vllm:num_requests_waiting", "vllm:request_success_total"),
    )
    for _ in range(1000):
        text = (await client.get("/metrics")).text
        numbers = {
            name: sum(
                float(line.rpartition(" ")[2])
                for line in text.splitlines()
                if line.startswith(f"{name}{{")
            )
            for name in (running, *others)
        }
        # One that the server has not seen yet would be refused after the signal.
        if numbers[running] >= 8 and sum(numbers.values()) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never under way: {numbers}")


async def refuses(client: httpx.AsyncClient) -> None:
    """/ready says so at once, new work is refused, other paths are answered."""
    for _ in range(200):
        ready = await client.get("/ready")
        if ready.status_code == 503:
            break
        await asyncio.sleep(0.005)
    assert ready.json()["status"] == "draining"
    refused = await client.post("/v1/completions", json={"prompt": "late"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["connection"] == "close"
    alive = await client.get("/health")
    assert (alive.status_code, alive.json()["status"]) == (200, "ok")
    assert (await client.get("/metrics")).status_code == 200


async def test_sigterm_under_load_loses_nothing(model: Path) -> None:
    quiet = spawn(model, **SETTINGS).wait_ready()
    try:
        alone = await answers(quiet, end=False)
    finally:
        quiet.end()
    process = spawn(model, log_level="info", **SETTINGS).wait_ready()
    try:
        ended = await answers(process, end=True)
    finally:
        code, err = process.wait()
    assert code == 0
    assert "Traceback" not in err
    assert "still open" not in err
    assert ended == alone


def test_the_timeout_bounds_it(model: Path) -> None:
    process = spawn(model, shutdown_timeout=0.2, **SETTINGS).wait_ready()
    long = {"prompt": ["x"] * 60, "max_tokens": 200, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{process.url}/v1/completions", json=long, timeout=30) as reply:
        lines = reply.iter_lines()
        next(lines)
        process.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert "the engine was closed" in rest[-1]
    code, err = process.wait()
    assert code == 0
    assert "1 request is still open after 0.2 s; aborted: --shutdown-timeout has passed" in err
    assert "Traceback" not in err


def read_until(terminal: int, words: str, patience_s: float = 20.0) -> str:
    """What a terminal shows up to these words, or all there was in time."""
    said, end_s = "", time.monotonic() + patience_s
    while words not in said and (left_s := end_s - time.monotonic()) > 0:
        if select.select([terminal], [], [], left_s)[0]:
            said += os.read(terminal, 1 << 16).decode(errors="replace")
    return said


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_a_terminal_is_told_what_is_waited_for(model: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "headrace", "serve", str(model), "--port", "0", "--json"]
    process = subprocess.Popen(
        [*command, "--backend", "reference", "--max-model-len", "512"],
        stdout=subprocess.PIPE, stderr=theirs, text=True,
    )  # fmt: skip
    os.close(theirs)
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    long = {"prompt": ["x"] * 60, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=long, timeout=30) as reply:
        lines = reply.iter_lines()
        next(lines)
        process.send_signal(signal.SIGINT)
        said = read_until(ours, "press Ctrl-C again to abort them")
        process.send_signal(signal.SIGINT)
        assert "engine_dead" in [line for line in lines if line][-1]
    assert process.wait(20) == 0
    process.stdout.close()
    said += os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "shutting down: 1 request is open; press Ctrl-C again to abort them" in said
    assert "Traceback" not in said
