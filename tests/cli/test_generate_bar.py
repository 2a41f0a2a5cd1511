"""`headrace generate` with several prompts shows people how far it is, and programs nothing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import write_tiny_gguf


@pytest.mark.process
@pytest.mark.parametrize(("prompts", "shown"), [(["a", "b", "c"], True), (["a"], False)])
def test_a_bar_is_for_terminals_and_several_prompts(
    prompts: list[str], shown: bool, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    flags = ["--max-tokens", "4", "--threads", "1", "--temperature", "0"]
    given = [word for prompt in prompts for word in ("-p", prompt)]
    path = str(write_tiny_gguf(tmp_path))
    command = [sys.executable, "-m", "headrace.cli.main", "generate", path, *given, *flags]
    in_terminal = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, stdin=theirs, timeout=60, check=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # Linux says so that nobody has the other end any more
        pass
    os.close(ours)
    assert (f"{len(prompts)}/{len(prompts)}".encode() in seen) == shown
    assert (b"tok/s" in seen) == shown
    piped = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert piped.stdout == in_terminal.stdout
    assert piped.stderr == b""
