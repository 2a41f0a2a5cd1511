"""A server that is started here, on a free port of loopback, and ended with all it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
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
    pid: int
    """Of its first process, which leads the group that it was started in."""

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """No thread of its processes runs while the block does, not even one that spins."""
        _signal_all(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_all(self.pid, signal.SIGCONT)


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
    """Its group gets SIGTERM, and after a while, or where the wait is interrupted, all that is left
    SIGKILL."""
    left = {pid: _started_at(pid) for pid in _descendants(process.pid)}
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        _signal_all(process.pid, signal.SIGCONT)  # what is stopped takes no signal but SIGKILL
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid, began in left.items():
            # A number may be another process's by now.
            if began is not None and _started_at(pid) == began:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.wait()


def _signal_all(pid: int, number: signal.Signals) -> None:
    """To the group of a process, and to descendants that left it: an engine has a session of its
    own."""
    for descendant in _descendants(pid):
        with suppress(ProcessLookupError):
            os.kill(descendant, number)
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


_PARENT, _BEGAN = 1, 19
"""Fields of /proc/PID/stat behind the name: proc_pid_stat(5) counts them from 3."""


def _field(status: Path, index: int) -> int:
    # The name, in brackets, may hold anything.
    return int(status.read_text().rpartition(")")[2].split()[index])


def _started_at(pid: int) -> int | None:
    """Ticks of the system's clock; None of a process that is gone."""
    try:
        return _field(Path(f"/proc/{pid}/stat"), _BEGAN)
    except (OSError, ValueError, IndexError):
        return None


def _descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those have; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            children.setdefault(_field(status, _PARENT), []).append(int(status.parent.name))
    found: list[int] = []
    new = [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return found


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
