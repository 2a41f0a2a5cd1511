"""Which NVIDIA cards this machine has, as their driver's own tool tells."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

_QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_TIMEOUT_S = 5.0
_MIB = 1 << 20


class NvidiaCard(NamedTuple):
    """A graphics card that nvidia-smi lists."""

    name: str
    """The driver's name for it, "NVIDIA H100 80GB HBM3"."""
    memory_bytes: int
    """0 where it says none."""


def nvidia_cards(environ: Mapping[str, str]) -> tuple[NvidiaCard, ...]:
    """The cards that nvidia-smi lists; none where it is not on PATH, fails or does not answer."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH", ""))
    if program is None:
        return ()
    try:
        done = subprocess.run(
            [program, *_QUERY],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(_card(line) for line in done.stdout.splitlines() if line.strip())


def _card(line: str) -> NvidiaCard:
    name, _, memory = line.rpartition(",")
    if not name:
        return NvidiaCard(line.strip(), 0)
    # Of cards that share the CPU's memory it says "[N/A]".
    mebibytes = int(memory) if memory.strip().isdigit() else 0
    return NvidiaCard(name.strip(), mebibytes * _MIB)
