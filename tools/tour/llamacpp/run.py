"""A run of their pytest files in a process of its own, and the outcome of each test.

Tests are named by file, function and number of the case, as the ids of cases hold their texts.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.tour.llamacpp.launcher import MODEL
from tools.tour.llamacpp.plugin import OUTCOMES

ROOT = Path(__file__).resolve().parents[3]
LOOPBACK = "127.0.0.1,localhost,::1"


@dataclass(frozen=True)
class Outcome:
    """What one of their tests gave."""

    test: str
    """File, function and, of a test with cases, `#` and the case's number from 1."""
    outcome: str
    """`passed`, `failed` or `skipped`."""
    reason: str
    """What failed, or why it was skipped."""


def run(tests: Path, files: Sequence[str], model: Path, folder: Path) -> list[Outcome]:
    """Run some of their files against `headrace serve`; their output is kept in the folder."""
    binary = folder / "llama-server"
    binary.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tools.tour.llamacpp.launcher "$@"\n',
        encoding="utf-8",
    )
    binary.chmod(0o755)
    outcomes = folder / "outcomes.jsonl"
    outcomes.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT), "LLAMA_SERVER_BIN_PATH": str(binary), MODEL: str(model),
        OUTCOMES: str(outcomes), "PORT": str(free_port()), "NO_PROXY": LOOPBACK,
        "no_proxy": LOOPBACK,
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.tour.llamacpp.plugin"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", str(tests)]
    command += [f"unit/{name}" for name in files]
    with (folder / "output.txt").open("wb") as output:
        subprocess.run(
            command, cwd=tests, env=environment, stdout=output, stderr=output, check=False
        )
    if not outcomes.exists():
        return []
    lines = outcomes.read_text(encoding="utf-8").splitlines()
    return numbered([json.loads(line) for line in lines])


def numbered(lines: Sequence[dict[str, str]]) -> list[Outcome]:
    """Name tests by the number of their case in place of its id."""
    seen: Counter[str] = Counter()
    out = []
    for line in lines:
        file, _, rest = line["test"].removeprefix("unit/").partition("::")
        function, bracket, _ = rest.partition("[")
        name = f"{file}::{function}"
        if bracket:
            seen[name] += 1
            name = f"{name}#{seen[name]}"
        out.append(Outcome(name, line["outcome"], line["reason"]))
    return out


def free_port() -> int:
    """A port on loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
