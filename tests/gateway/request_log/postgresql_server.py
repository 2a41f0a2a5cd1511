"""A PostgreSQL of a test's own: on a loopback port, in a folder of its own, killed and started
again. Debian's has no command on PATH, and none of it runs as root."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_START_S = 60.0
_USER = "postgres"


def _program(name: str) -> str:
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = next((str(one) for one in places if os.access(one, os.X_OK)), shutil.which(name))
    if found is None:
        pytest.skip(f"PostgreSQL's {name} is missing; apt-get install postgresql has it")
    return found


def _as_user() -> list[str]:
    """What a command begins with to run as somebody who is not root."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no setpriv")
    try:
        pwd.getpwnam(_USER)
    except KeyError:
        pytest.skip(f"PostgreSQL does not run as root, and there is no user {_USER}")
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]


class PostgresqlServer:
    """folder: that its user may write to."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._log = folder / "log"
        self._names = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        options = ["-D", str(self._data), "-A", "trust", "-U", _USER, "--no-sync", "-E", "UTF8"]
        subprocess.run(
            [*_as_user(), _program("initdb"), *options, "--locale=C"],
            check=True, cwd="/", stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self) -> None:
        """Returns when it answers. Processes of one that was killed may be there for a moment."""
        until = time.monotonic() + _START_S
        while True:
            self._spawn()
            while self._process is not None:
                if self._answers():
                    return
                if self._process.poll() is not None:
                    self._process = None
                time.sleep(0.05)
                assert time.monotonic() < until, self._log.read_text()

    def kill(self) -> None:
        """Without a word; what was committed is in its log."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_START_S)
        self._process = None

    def new_database(self) -> str:
        """Its URL."""
        import psycopg

        name = f"test_{next(self._names)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def _spawn(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
            "max_connections": "20", "shared_buffers": "16MB",
        }  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_user(), _program("postgres"), "-D", str(self._data), "-p", str(self.port),
                 *options],
                stdout=log, stderr=log, cwd="/",
            )  # fmt: skip

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True


@contextmanager
def running() -> Iterator[PostgresqlServer]:
    """The test is skipped where there is none."""
    pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'headrace[postgres]'")
    _program("initdb")
    with tempfile.TemporaryDirectory(prefix="headrace-postgresql-") as name:
        folder = Path(name)
        if _as_user():
            shutil.chown(folder, _USER, _USER)
        server = PostgresqlServer(folder)
        server.start()
        try:
            yield server
        finally:
            if server._process is not None:
                server.kill()
