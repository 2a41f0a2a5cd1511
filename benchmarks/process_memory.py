"""Memory of a process and its children, as Linux counts it.

Anonymous pages are what a process made itself: nothing can take them back. Pages of files are read
again when they are needed, so a mapped checkpoint is not among what a process needs at least.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

POLL_S = 0.02


class Resident(NamedTuple):
    """Bytes in memory. own: anonymous and shared pages. files: pages of mapped files."""

    own: int
    files: int


def resident(pid: int, proc: Path = Path("/proc")) -> Resident:
    """Of one process; none of one that has ended."""
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
    except OSError:
        return Resident(0, 0)
    fields = dict(line.split(":", 1) for line in lines)

    def num_bytes(name: str) -> int:
        return int(fields[name].split()[0]) * 1024 if name in fields else 0

    return Resident(num_bytes("RssAnon") + num_bytes("RssShmem"), num_bytes("RssFile"))


def children(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Processes that `pid` started, theirs not included."""
    try:
        tasks = list((proc / str(pid) / "task").iterdir())
        found = " ".join((task / "children").read_text() for task in tasks)
    except OSError:
        return []
    return [int(one) for one in found.split()]


class Peak:
    """The most that a process has had, polled in a thread between enter and exit."""

    def __init__(self, pid: int) -> None:
        self.most = Resident(0, 0)
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _poll(self) -> None:
        while True:
            self.most = max(self.most, resident(self._pid))
            if self._ended.wait(POLL_S):
                return
