"""A server that is started here ends with all it started, and is stopped beside another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.bench.against.process import free_port, started
from headrace.errors import HeadraceError
from tests.waiting import runs

WAITS = [sys.executable, "-c", "import time; time.sleep(60)"]
LIMIT_S = 20.0


def state_of(pid: int) -> str:
    """A letter; T is stopped."""
    # proc(5): the state stands behind the name, which is in parentheses.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def comes_to(pid: int, *, stopped: bool) -> bool:
    """Whether the process is in that state before long."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        if (state_of(pid) == "T") == stopped:
            return True
        time.sleep(0.01)
    return False


def gone(pid: int) -> bool:
    """Whether the process ends before long; one that waits for its new parent alone has."""
    end_s = time.monotonic() + LIMIT_S
    while runs(pid) and time.monotonic() < end_s:
        time.sleep(0.01)
    return not runs(pid)


def test_a_stopped_server_goes_on() -> None:
    with started(WAITS, is_ready=lambda: True, timeout_s=LIMIT_S, environ=os.environ) as server:
        with server.stopped():
            assert comes_to(server.pid, stopped=True)
        assert comes_to(server.pid, stopped=False)
    assert not Path(f"/proc/{server.pid}").exists()


def test_a_server_ends_with_all_that_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    command = ["sh", "-c", f"sleep 600 & echo $! > {child}; wait"]
    with started(command, is_ready=child.exists, timeout_s=20, environ=os.environ) as server:
        assert 0 <= server.ready_s < 20
        while not child.read_text():
            time.sleep(0.01)
    assert gone(int(child.read_text()))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="descendants are found in /proc")
def test_a_process_with_a_session_of_its_own_is_stopped_and_ended(tmp_path: Path) -> None:
    child = tmp_path / "child"
    keeps = (
        "import subprocess, pathlib, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(child)!r}).write_text(str(child.pid))\ntime.sleep(600)"
    )
    command = [sys.executable, "-c", keeps]
    with started(command, is_ready=child.exists, timeout_s=20, environ=os.environ) as server:
        while not child.read_text():
            time.sleep(0.01)
        number = int(child.read_text())
        with server.stopped():
            assert comes_to(number, stopped=True)
        assert comes_to(number, stopped=False)
    assert gone(number)


def test_a_server_that_stays_is_killed_where_the_wait_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    command = ["sh", "-c", f"trap '' TERM; touch {ready}; sleep 600 & wait; wait"]
    waited = subprocess.Popen.wait
    calls: list[float | None] = []

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        calls.append(timeout)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return waited(process, timeout)

    with (
        pytest.raises(KeyboardInterrupt),
        started(command, is_ready=ready.exists, timeout_s=20, environ=os.environ) as server,
    ):
        monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    assert gone(server.pid)


@pytest.mark.parametrize(
    ("command", "timeout_s", "message"),
    [
        (
            ["sh", "-c", "seq 100; echo no such file; exit 3"],
            20,
            "status 3 before it was ready; its output ends:\n  92\n(?s:.*)\n  100\n  no such file$",
        ),
        (["sh", "-c", "exit 3"], 20, "status 3 before it was ready; it wrote nothing$"),
        (["sleep", "600"], 0.1, "not ready within 0.1 s; raise --start-timeout"),
        (["/no/such/program"], 1, "cannot be started: No such file"),
    ],
)
def test_a_server_that_never_was_ready_says_why(
    command: list[str], timeout_s: float, message: str
) -> None:
    with (
        pytest.raises(HeadraceError, match=message),
        started(command, is_ready=lambda: False, timeout_s=timeout_s, environ=os.environ),
    ):
        pass


def test_a_free_port_can_be_taken() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))


def test_a_server_is_called_by_its_name_in_errors() -> None:
    with (
        pytest.raises(HeadraceError, match=r"^headrace serve ended with status 3 before"),
        started(
            ["sh", "-c", "exit 3"],
            is_ready=lambda: False,
            timeout_s=20,
            environ=os.environ,
            name="headrace serve",
        ),
    ):
        pass
