"""`headrace bench load`, in a process of its own or in this one, and what holds however it ends."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.bench.record import RunRecord
from headrace.bench.report.files import read_run
from headrace.cli.main import main
from tests.bench.misbehaving import Request

KEY = "sk-proj-abcdefgh12345678"
LIMIT_S = 240  # of a machine that has other things to do
REQUESTS = 4
SMALL = ("-m", "m", "-c", "2", "--input-tokens", "8", "--output-tokens", "4", "--quiet")


class Ran(NamedTuple):
    """How a command ended. line: what it says of its failure; "" where it says nothing."""

    status: int
    output: str
    line: str
    folder: Path

    @property
    def run(self) -> RunRecord:
        return read_run(self.folder)

    @property
    def failures(self) -> dict[str, int]:
        return dict(Counter(one.failure.kind for one in self.run.requests if one.failure))


def begin(url: str, folder: Path, *flags: str, shell: str = "") -> subprocess.Popen[str]:
    """Start a load; its files go into `folder`. shell: what a shell does before it."""
    command = [sys.executable, "-m", "headrace", "bench", "load", url, *SMALL]
    command += ["--save", str(folder), *flags]
    if shell:
        command = ["sh", "-c", f'{shell} exec "$@"', "sh", *command]
    env = os.environ | {"HEADRACE_BENCH_API_KEY": KEY}
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str], folder: Path) -> Ran:
    """Wait for its end, and check what holds for every end."""
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    return _checked(process.returncode, output, errors, folder)


def _checked(status: int, output: str, errors: str, folder: Path) -> Ran:
    assert "Traceback" not in errors, errors
    kept = [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    assert KEY not in "".join([output, errors, *kept])
    lines = [line for line in errors.splitlines() if line.startswith(("headrace: ", "Error: "))]
    assert len(lines) <= 1, errors
    return Ran(status, output, lines[0] if lines else "", folder)


def load_apart(url: str, folder: Path, *flags: str, shell: str = "") -> Ran:
    """A whole load of REQUESTS requests by a process of its own."""
    return ended(begin(url, folder, "-n", str(REQUESTS), *flags, shell=shell), folder)


def load(url: str, folder: Path, *flags: str, requests: int | None = REQUESTS) -> Ran:
    """A whole load in this process, by the console script's own function."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    arguments = ["headrace", "bench", "load", url, *SMALL, "--save", str(folder), *flags]
    arguments += ["-n", str(requests)] if requests else []
    handler, status = signal.getsignal(signal.SIGINT), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setenv("HEADRACE_BENCH_API_KEY", KEY)
        patch.setattr(sys, "argv", arguments)
        patch.setattr(warnings, "formatwarning", warnings.formatwarning)
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            signal.signal(signal.SIGINT, handler)
    shown = []
    for stream in (output, errors):
        stream.seek(0)
        shown.append(stream.read())
    return _checked(status, shown[0], shown[1], folder)


async def silent(_request: Request, writer: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(LIMIT_S)
    return False
