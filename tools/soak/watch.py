"""What a server and its engine hold: memory, file handles, threads, tasks, blocks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import httpx


class Held(NamedTuple):
    """At one moment, of the server's process and of the engine's. Tasks: of the server's loop."""

    server_bytes: int
    engine_bytes: int
    server_handles: int
    engine_handles: int
    server_threads: int
    tasks: int
    blocks_owned: int
    waiting: int
    running: int


def engine_pid(server_pid: int) -> int:
    """The engine process of a server: its one child."""
    children = Path(f"/proc/{server_pid}/task/{server_pid}/children").read_text().split()
    for thread in Path(f"/proc/{server_pid}/task").iterdir():
        children += (thread / "children").read_text().split()
    (pid,) = {int(child) for child in children}
    return pid


def held(server_pid: int, metrics: dict[str, float]) -> Held:
    """What is held now. metrics: samples of the server, by name and labels."""
    engine = engine_pid(server_pid)
    return Held(
        server_bytes=_status(server_pid, "VmRSS") * 1024,
        engine_bytes=_status(engine, "VmRSS") * 1024,
        server_handles=_handles(server_pid),
        engine_handles=_handles(engine),
        server_threads=_status(server_pid, "Threads"),
        tasks=int(_sample(metrics, "headrace:server_tasks")),
        blocks_owned=int(_sample(metrics, "headrace:kv_blocks", 'state="owned"')),
        waiting=int(_sample(metrics, "vllm:num_requests_waiting")),
        running=int(_sample(metrics, "vllm:num_requests_running")),
    )


async def metrics_of(client: httpx.AsyncClient) -> dict[str, float]:
    """Every sample of /metrics, by name and labels."""
    reply = await client.get("/metrics")
    reply.raise_for_status()
    lines = (line for line in reply.text.splitlines() if line and line[0] != "#")
    parts = (line.rpartition(" ") for line in lines)
    return {name: float(value) for name, _, value in parts}


def total(metrics: dict[str, float], name: str) -> float:
    """The sum of a family's samples over their labels."""
    return sum(value for key, value in metrics.items() if key.partition("{")[0] == name)


def _sample(metrics: dict[str, float], name: str, label: str = "") -> float:
    return sum(
        value for key, value in metrics.items() if key.partition("{")[0] == name and label in key
    )


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise KeyError(field)


def _handles(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
