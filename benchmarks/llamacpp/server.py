"""A llama-server of our own on loopback."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

READY_TIMEOUT_S = 120.0


def start_server(
    program: str, model: Path, options: Sequence[str]
) -> tuple[subprocess.Popen[bytes], str]:
    """The process and its address, when it is ready. Raises RuntimeError where it never was."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "-m", str(model), "--port", str(port), "--host", "127.0.0.1", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return process, url
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    process.kill()
    raise RuntimeError(f"llama-server was not ready: {command}")


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """End it and wait until it is gone."""
    process.terminate()
    process.wait(30)
