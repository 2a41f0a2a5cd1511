"""A Redis of a test's own: on a loopback port, in a folder of its own, killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_START_S = 20.0


def redis_program() -> str:
    """The server's program; the test is skipped where there is none."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("redis-server is not on PATH; apt-get install redis-server has it")
    return program


class RedisServer:
    """persistent: whether what it knows outlives a kill (an append-only file). options: more of the
    program's."""

    def __init__(
        self,
        program: str,
        folder: Path,
        *,
        persistent: bool = False,
        password: str = "",
        options: tuple[str, ...] = (),
    ) -> None:
        self._options = options
        self._password = password
        self._program = program
        self._folder = folder
        self.persistent = persistent
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]

    @property
    def url(self) -> str:
        user = f":{self._password}@" if self._password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns when it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        options = [*self._options, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        options += ["--dir", str(self._folder), "--daemonize", "no"]
        options += ["--appendonly", "yes" if self.persistent else "no"]
        # A write that was answered is in the file then; only a machine that dies would lose it.
        options += ["--appendfsync", "no"]
        options += ["--requirepass", self._password] if self._password else []
        log = (self._folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self._program, *options], stdout=log, stderr=log, env={**os.environ}
            )
        until = time.monotonic() + _START_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < until, "redis-server does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """At once, as a machine dies."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def unread_bytes(self) -> int:
        """What clients have sent and it has not read yet."""
        total = 0
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            address, state, queues = fields[1], fields[3], fields[4]
            # 01 is an established connection; a listener's queue counts connections.
            if state == "01" and address.endswith(f":{self.port:04X}"):
                total += int(queues.partition(":")[2], 16)
        return total

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It takes what is sent, and does it only afterwards."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(1)
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
