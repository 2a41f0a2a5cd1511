"""What a server is: read from the process that listens, from its addresses, without secrets."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from headrace.bench.against.peer import is_here, listening_command, masked


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
