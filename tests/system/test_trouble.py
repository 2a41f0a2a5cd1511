"""Clients of every kind, and an engine that is killed and restarted meanwhile: nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serve_process import Process, spawn
from tests.system.test_engine_dies import engine_pid, health, serves_again
from tests.tiny import write_tiny_gguf
from tests.waiting import PATIENCE_S, PAUSE_S
from tools.soak.watch import held, metrics_of

pytestmark = pytest.mark.process

OPERATIONS = 240
ADMIN = {"Authorization": "Bearer sk-admin"}
SETTINGS: dict[str, Any] = {
    "max_num_seqs": 8, "max_num_queued_reqs": 64, "max_num_queued_tokens": 20_000,
    "max_engine_restarts": 1000, "admin_api_key": "sk-admin", "slow_client_timeout": 2.0,
    "engine_stall_timeout": 2.0,
}  # fmt: skip
PROMPTS: list[dict[str, Any]] = [
    {"prompt": "x" * 200}, {"prompt": ["a b c", "d", "e" * 90]}, {"prompt": "q", "n": 8},
    {"prompt": "q", "n": 128}, {"prompt": "q", "best_of": 4, "n": 2, "stream": False},
    {"prompt": "echo", "echo": True, "logprobs": 2}, {"prompt": "z", "prompt_logprobs": 3},
    {"prompt": "x" * 4000}, {"prompt": 5}, {"prompt": ["x"] * 90}, {"prompt": "q", "n": 3},
]  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model"), family="qwen3")


def drawn(rng: random.Random) -> bytes:
    body = {"stream": rng.random() < 0.6, "seed": 1, "max_tokens": rng.choice([1, 5, 30, 100])}
    path = "/v1/completions"
    body |= rng.choice(PROMPTS)
    if rng.random() < 0.25:
        path = "/v1/chat/completions"
        del body["prompt"]
        for name in ("best_of", "echo", "logprobs", "prompt_logprobs"):
            body.pop(name, None)
        role = rng.choice(["user", "user", "user", "nobody"])
        body["messages"] = [{"role": role, "content": "hi" * rng.randint(1, 60)}]
    if rng.random() < 0.1:
        body["timeout_s"] = rng.choice([1e-9, 0.01, 0.2])
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data


async def client(address: tuple[str, int], rng: random.Random, seen: Counter[str]) -> None:
    """One client; whoever stays to the end has a whole reply, or an error, in time."""
    raw, fate = drawn(rng), rng.random()
    reader, writer = await asyncio.open_connection(*address)
    try:
        if fate < 0.1:
            writer.write(raw[: rng.randrange(len(raw))])
            await asyncio.sleep(rng.random() * 0.2)
        elif fate < 0.2:
            writer.write(raw)
            await asyncio.sleep(rng.random() * 0.2)
        elif fate < 0.25:
            writer.write(raw)
            writer.write_eof()
        elif fate < 0.3:
            writer.write(raw.replace(b"Connection: close\r\n", b"") * rng.randint(2, 40))
            await asyncio.sleep(rng.random() * 0.3)
        elif fate < 0.35:
            writer.write(raw)
            reset = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            await asyncio.sleep(rng.random() * 0.1)
        else:
            writer.write(raw)
            async with asyncio.timeout(PATIENCE_S):
                reply = await reader.read(-1)
            head, _, body = reply.partition(b"\r\n\r\n")
            status = head[9:12].decode()
            assert status in {"200", "400", "429", "503"}, reply[:300]
            if b"text/event-stream" in head:
                assert b"data: [DONE]" in body or b'data: {"error"' in body, body[-300:]
            else:
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                assert len(body) == length
            assert b"internal_error" not in body
            seen[status] += 1
    finally:
        writer.close()


async def trouble(process: Process, rng: random.Random, http: httpx.AsyncClient) -> str:
    """Something that befalls the engine."""
    kind = rng.choice(["kill", "kill", "stop", "restart", "restart", "cancel", "reset"])
    if kind in ("kill", "stop"):
        try:
            number = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
            os.kill(engine_pid(process), number)
        except (ValueError, ProcessLookupError):  # between two engines
            return f"{kind} nobody"
        return kind
    if kind == "cancel":
        calls = (await http.get("/admin/requests", headers=ADMIN)).json()["requests"]
        body = {"request_id": rng.choice(calls)["request_id"]}
        reply = await http.post("/admin/cancel", headers=ADMIN, json=body)
        assert reply.status_code in (200, 404)
        return kind
    path = "restart_engine" if kind == "restart" else "reset_prefix_cache"
    reply = await http.post(f"/admin/{path}", headers=ADMIN)
    assert reply.status_code in (200, 503), reply.text
    return f"{kind} {reply.status_code}"


async def at_rest(process: Process, http: httpx.AsyncClient) -> tuple[int, int]:
    """Wait until the server holds nothing of anybody; its tasks and file handles then."""
    for _ in range(300):
        calls = (await http.get("/admin/requests", headers=ADMIN)).json()["requests"]
        metrics = await metrics_of(http)
        queued = metrics["headrace:admission_queued_requests"]
        tokens = metrics["headrace:admission_queued_tokens"]
        if len(calls) == 1 and not queued and not tokens and metrics["headrace:ready"]:
            now = held(process.process.pid, metrics)
            if not (now.running or now.waiting or now.blocks_owned):
                return now.tasks, now.server_handles
        await asyncio.sleep(0.1)
    raise AssertionError((calls, queued, tokens, health(process)))


async def back_to(process: Process, http: httpx.AsyncClient, tasks: int, handles: int) -> None:
    """Wait until it holds no more tasks and file handles than before: a heartbeat comes and goes.

    Nor fewer, which would be as if something that it needs had ended.
    """
    end_s = time.monotonic() + PATIENCE_S
    while (now := await at_rest(process, http)) != (tasks, handles):
        assert time.monotonic() < end_s, (now, (tasks, handles))
        await asyncio.sleep(PAUSE_S)


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_left(model: Path, seed: int) -> None:
    rng, seen = random.Random(seed), Counter[str]()
    process = spawn(model, **SETTINGS).wait_ready()
    address = ("127.0.0.1", int(process.url.rpartition(":")[2]))
    try:
        async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
            await http.post("/v1/completions", json={"prompt": "x"})
            tasks, handles = await at_rest(process, http)
            for _ in range(2):
                clients = []
                for number in range(OPERATIONS // 2):
                    clients.append(asyncio.ensure_future(client(address, rng, seen)))
                    if number % 12 == 5:
                        seen[await trouble(process, rng, http)] += 1
                    await asyncio.sleep(rng.random() * 0.02)
                await asyncio.gather(*clients)
                await back_to(process, http, tasks, handles)
            assert (await http.post("/v1/completions", json={"prompt": "x"})).status_code == 200
    finally:
        code, err = process.end()
    assert seen["200"] > 1, seen
    assert seen["503"], seen
    assert (code, "Traceback" in err) == (0, False), err[-3000:]


def test_clients_that_take_every_file_do_not_keep_an_engine_from_starting(model: Path) -> None:
    command = [sys.executable, "-m", "headrace", "serve", str(model), "--port", "0", "--json"]

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    started = subprocess.Popen(
        [*command, "--max-model-len", "64"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=few_files,
    )  # fmt: skip
    process = Process(started).wait_ready()
    port = int(process.url.rpartition(":")[2])
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    try:
        os.kill(engine_pid(process), signal.SIGKILL)
        idle[0].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[0].recv(4096).startswith(b"HTTP/1.1 ")
        for one in idle[1:90]:
            one.close()
        serves_again(process, 1)
        assert health(process)[1]["restarts"] == 1
    finally:
        for one in idle:
            one.close()
        code, err = process.end()
    assert code == 0
    assert "at most 16 connections are served at once" in err
