"""Wait for what comes about by itself, a bounded time.

What a test counts (tasks, file handles, threads, processes, requests) is awaited until it holds: at
one instant a heartbeat may be alive or a process not yet reaped. A fixed sleep is left where the
time is the test's subject, or where something is shown not to happen meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 60.0
"""Far longer than anything takes on a busy machine: it ends what would never end."""

PAUSE_S = 0.01


async def until(
    condition: Callable[[], object], what: str | Callable[[], str], patience_s: float = PATIENCE_S
) -> None:
    """Return once `condition()` holds; fail with `what` was awaited where it never does."""
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, never(what)
        await asyncio.sleep(PAUSE_S)


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], str], patience_s: float = PATIENCE_S
) -> None:
    """`until` for a test without a loop."""
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, never(what)
        time.sleep(PAUSE_S)


def never(what: str | Callable[[], str]) -> str:
    return f"never: {what if isinstance(what, str) else what()}"


def descriptors() -> set[str]:
    """The open files of this process, each with its number."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except OSError:  # that of the listing itself
            continue
    return found


def threads() -> int:
    """Threads of this process, those of libraries included."""
    return len(list(Path("/proc/self/task").iterdir()))


def children(pid: int | str = "self") -> set[int]:
    """Processes that `pid` has started and not waited for.

    The kernel lists them by thread. Where a thread ends while they are read, its children are
    another thread's, which may have been read before: then all is read again.
    """
    while True:
        found: set[int] = set()
        ended = False
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                found.update(map(int, (task / "children").read_text().split()))
            except (FileNotFoundError, ProcessLookupError):
                ended = True
        if not ended:
            return found


def runs(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
