"""A `headrace serve` of its own over a small random model of one codec."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S = 60
END_TIMEOUT_S = 30
# Fifteen requests of the longest kind: 64 streams preempt each other all the time.
BLOCKS = 128
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Server:
    """One that is ready."""

    url: str
    model: str
    process: subprocess.Popen[str]


def write_model(folder: Path, codec: str) -> Path:
    """A model of random weights in this codec (benchmarks/shaped_model.py)."""
    path = folder / f"soak-{codec}.gguf"
    script = ROOT / "benchmarks" / "shaped_model.py"
    command = [sys.executable, str(script), str(path), "--shape", "small", "--untied"]
    subprocess.run([*command, "--codec", codec], check=True, stdout=subprocess.DEVNULL)
    return path


@contextmanager
def serving(model: Path, *flags: str) -> Iterator[Server]:
    """Start it on a free port of loopback, end it with SIGTERM."""
    command = [sys.executable, "-m", "headrace.cli.main", "serve", str(model), "--json"]
    command += ["--port", "0", "--block-size", str(BLOCK_SIZE), "--log-level", "warning"]
    command += ["--num-gpu-blocks-override", str(BLOCKS), "--scheduling-policy", "priority", *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    watchdog = threading.Timer(READY_TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise RuntimeError(f"{' '.join(command)} ended with {process.wait()}")
        ready = json.loads(line)
        yield Server(ready["url"], ready["model"], process)
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
