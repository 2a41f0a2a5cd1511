"""A server that is started here, on a free port of loopback, and ended with all it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, NamedTuple

from headrace.errors import HeadraceError, shown

_POLL_S = 0.1
_END_S = 20.0
"""A server may finish what it writes; then it is killed."""
_LOG_BYTES = 8000
_LOG_LINES = 10
_LINE_CHARACTERS = 300
"""What an error shows of the end of a server's output."""


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listened a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class StartedServer(NamedTuple):
    """A server that was started here. ready_s: seconds until it was ready."""

    ready_s: float
    group: int
    """Of its processes."""

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """None of its threads runs while the block does, not even one that waits and spins."""
        os.killpg(self.group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.group, signal.SIGCONT)


@contextmanager
def started(
    command: Sequence[str],
    *,
    is_ready: Callable[[], bool],
    timeout_s: float,
    environ: Mapping[str, str],
    name: str | None = None,
) -> Iterator[StartedServer]:
    """Run `command` while the block runs. name: of the program in errors; None: its first word.

    It has a process group of its own, which is ended with it: a shell or a launcher leaves nothing
    behind. Raises HeadraceError with the end of its output where it cannot be started, ends, or is
    not ready in time.
    """
    called = command[0] if name is None else name
    with tempfile.TemporaryFile() as log:
        began_s = time.monotonic()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(environ),
            )
        except OSError as error:
            raise HeadraceError(
                f"{shown(command[0])} cannot be started: {error.strerror}; give the program's path"
            ) from error
        try:
            while not is_ready():
                if process.poll() is not None:
                    raise HeadraceError(
                        f"{called} ended with status {process.returncode} before it was "
                        f"ready; {_end_of(log)}"
                    )
                if time.monotonic() - began_s > timeout_s:
                    raise HeadraceError(
                        f"{called} was not ready within {timeout_s:g} s; raise "
                        f"--start-timeout; {_end_of(log)}"
                    )
                time.sleep(_POLL_S)
            yield StartedServer(time.monotonic() - began_s, process.pid)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _end_of(log: IO[bytes]) -> str:
    """The last lines, each on a line of its own."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_BYTES))
    text = log.read().decode("utf-8", errors="replace")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][-_LOG_LINES:]
    if not lines:
        return "it wrote nothing"
    shown_lines = [f"  {line[:_LINE_CHARACTERS]}" for line in lines]
    return "\n".join(["its output ends:", *shown_lines])
