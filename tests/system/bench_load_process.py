"""`headrace bench load` as a process of its own, and what holds however it ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from headrace.bench.record import RunRecord
from headrace.bench.report.files import read_run
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
    assert "Traceback" not in errors, errors
    kept = [one.read_bytes().decode("latin-1") for one in folder.rglob("*") if one.is_file()]
    assert KEY not in "".join([output, errors, *kept])
    told = [line for line in errors.splitlines() if line.startswith(("headrace: ", "Error: "))]
    assert len(told) <= 1, errors
    return Ran(process.returncode, output, told[0] if told else "", folder)


def load(url: str, folder: Path, *flags: str, shell: str = "") -> Ran:
    """A whole load of REQUESTS requests."""
    return ended(begin(url, folder, "-n", str(REQUESTS), *flags, shell=shell), folder)


async def silent(_request: Request, writer: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(LIMIT_S)
    return False
