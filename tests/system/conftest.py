"""A real `headrace serve` in a process of its own, on loopback, for tests that need the whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

READY_TIMEOUT_S = 60


@dataclass(frozen=True)
class RunningServer:
    """A server that answers; `model` is the name it serves."""

    url: str
    model: str
    process: subprocess.Popen[str]

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by name; samples that differ in labels are added up."""
        samples: dict[str, float] = {}
        for line in httpx.get(f"{self.url}/metrics", timeout=10).text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name = name.partition("{")[0]
                samples[name] = samples.get(name, 0.0) + float(value)
        return samples


def start_server(
    model: Path | str | None, *flags: str, address_space_bytes: int | None = None
) -> RunningServer:
    """Start `headrace serve` on a free port and wait until it says it is ready.

    address_space_bytes: the limit of each of its processes.
    """
    command = [sys.executable, "-m", "headrace.cli.main", "serve"]
    command += [str(model)] if model else []
    command += ["--port", "0", "--json", "--log-level", "warning", *flags]
    if address_space_bytes is not None:
        command = ["prlimit", f"--as={address_space_bytes}", *command]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    watchdog = threading.Timer(READY_TIMEOUT_S, process.kill)
    watchdog.start()
    assert process.stdout is not None
    line = process.stdout.readline()
    watchdog.cancel()
    if not line:
        raise RuntimeError(f"{command} ended with {process.wait()} before it was ready")
    ready = json.loads(line)
    return RunningServer(ready["url"], ready["model"], process)


def stop_server(server: RunningServer) -> int:
    """SIGTERM, then wait; the exit status."""
    server.process.send_signal(signal.SIGTERM)
    try:
        return server.process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.process.kill()
        raise


@pytest.fixture
def serve() -> Iterator[Callable[..., RunningServer]]:
    """`serve(model, *flags)` starts servers that end with the test."""
    servers: list[RunningServer] = []

    def start(model: Path | str | None, *flags: str) -> RunningServer:
        servers.append(start_server(model, *flags))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            stop_server(server)
