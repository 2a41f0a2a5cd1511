"""A llama-server of our own on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import httpx

READY_TIMEOUT_S = 120.0


@contextmanager
def servers() -> Iterator[ExitStack]:
    """A stack for what ends servers, which is unwound where this process is told to end, too: a
    SIGTERM ends Python at once otherwise, and leaves them running."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        with ExitStack() as stack:
            yield stack
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


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
    try:
        if _is_ready(process, url):
            return process, url
    except BaseException:  # this process ends: nobody else knows of that one
        _kill(process)
        raise
    _kill(process)
    raise RuntimeError(f"llama-server was not ready: {command}")


def _is_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    """Wait until it answers; whether it did before it ended and in time."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """End it and wait until it is gone."""
    process.terminate()
    process.wait(30)
