"""What a server is: read from the process that listens, from its addresses, without secrets."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from headrace.bench.against.peer import is_here, listening_command, masked
from headrace.bench.against.process import free_port, started
from headrace.errors import HeadraceError


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["a", "--api-key", "sk-1", "-c", "8"], "a --api-key ******** -c 8"),
        (["a", "--api-key=sk-1"], "a --api-key=********"),
        (["a", "--hf-token", "t", "--tokenizer", "path"], "a --hf-token ******** --tokenizer path"),
        (["a", "--max-num-batched-tokens", "512"], "a --max-num-batched-tokens 512"),
        (["a", "--api-key", "--port", "1"], "a --api-key --port 1"),
    ],
)
def test_secrets_of_a_command_line_are_masked(arguments: list[str], shown: str) -> None:
    assert masked(arguments) == shown


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_who_listens_is_found() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        own = Path("/proc/self/cmdline").read_bytes().decode().split("\0")[:-1]
        assert listening_command(url) == masked(own)
    assert listening_command(url) is None
    assert listening_command("http://192.0.2.1:80") is None


def test_only_loopback_is_this_machine() -> None:
    assert is_here("http://localhost:1") and is_here("http://[::1]:1")
    assert not is_here("http://192.0.2.1:1") and not is_here("http://example.com")


def test_a_server_ends_with_all_that_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    command = ["sh", "-c", f"sleep 600 & echo $! > {child}; wait"]
    with started(command, is_ready=child.exists, timeout_s=20, environ=os.environ) as ready_s:
        assert 0 <= ready_s < 20
        while not child.read_text():
            time.sleep(0.01)
    number = int(child.read_text())
    for _ in range(200):
        if not Path(f"/proc/{number}").exists():
            break
        time.sleep(0.02)
    else:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "Z", "it waits for its new parent alone"


@pytest.mark.parametrize(
    ("command", "timeout_s", "message"),
    [
        (["sh", "-c", "echo no such file; exit 3"], 20, "status 3 .* no such file"),
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
