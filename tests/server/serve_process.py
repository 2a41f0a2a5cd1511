"""`serve` as a process of its own, for tests that need a whole engine or the end of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from headrace.config import ServerConfig

READY_TIMEOUT_S = 60

MAIN = (
    "import json, sys; from headrace.config import EngineConfig, ServerConfig; "
    "from headrace.server.run import serve; a = json.loads(sys.argv[1]); "
    "sys.exit(serve(EngineConfig(**a['engine']), ServerConfig(**a['server']), as_json=a['json']))"
)


@dataclass
class Process:
    """A started `serve`."""

    process: subprocess.Popen[str]
    url: str = ""
    ready: Any = None

    def wait_ready(self) -> Process:
        """Read the line it prints once the model is there."""
        watchdog = threading.Timer(READY_TIMEOUT_S, self.process.kill)
        watchdog.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert line, self.process.communicate()[1]
        self.ready = json.loads(line) if line.startswith("{") else line
        if isinstance(self.ready, dict):
            self.url = self.ready["url"]
        return self

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, timeout=60)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait; exit code and stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """Wait for its end; exit code and stderr."""
        try:
            _, err = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, err


def spawn(
    model: Path | str, *, as_json: bool = True, stdout: Path | None = None, **settings: Any
) -> Process:
    """Start it; `settings` are of the server or of the engine. stdout: instead of a pipe."""
    server_names = ServerConfig.__struct_fields__
    server = {"port": 0, **{k: v for k, v in settings.items() if k in server_names}}
    engine = {"backend": "reference", **{k: v for k, v in settings.items() if k not in server}}
    arguments = json.dumps(
        {"engine": {"model": str(model), **engine}, "server": server, "json": as_json}
    )
    return Process(
        subprocess.Popen(
            [sys.executable, "-c", MAIN, arguments],
            stdout=subprocess.PIPE if stdout is None else stdout.open("w"),
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    )
