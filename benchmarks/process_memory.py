"""Memory of a process and its children, as Linux counts it.

Anonymous pages are what a process made itself: nothing can take them back. Pages of files are read
again when they are needed, so a mapped checkpoint is not among what a process needs at least. What
several processes share counts for each with its part (Pss), so that sums over processes are true.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

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


def proportional(pid: int, proc: Path = Path("/proc")) -> int:
    """Bytes of a process and all that it started (Pss, mapped files included)."""
    try:
        text = (proc / str(pid) / "smaps_rollup").read_text()
        own = int(text.partition("\nPss:")[2].split()[0]) * 1024
    except (OSError, IndexError):  # it has ended, or is about to
        own = 0
    return own + sum(proportional(child, proc) for child in children(pid, proc))


def children(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Processes that `pid` started, theirs not included."""
    try:
        tasks = list((proc / str(pid) / "task").iterdir())
        found = " ".join((task / "children").read_text() for task in tasks)
    except OSError:
        return []
    return [int(each) for each in found.split()]


_Amount = TypeVar("_Amount", Resident, int)


class Peak(Generic[_Amount]):
    """The most that a process has had, polled in a thread between enter and exit."""

    def __init__(
        self, pid: int, amount: Callable[[int], _Amount], *, every_s: float = POLL_S
    ) -> None:
        """amount: of the process, such as `resident`."""
        self.most: _Amount = amount(pid)
        self._pid = pid
        self._amount: Callable[[int], _Amount] = amount
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Peak[_Amount]:
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
            self.most = max(self.most, self._amount(self._pid))
            if self._ended.wait(self._every_s):
                return
