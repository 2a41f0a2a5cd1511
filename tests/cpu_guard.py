"""The guard of the quick tier: an unmarked test's own call takes at most half a second of CPU.

Counted is the CPU time of this process and of all processes under it, between the beginning and
the end of the call. Set-up, tear-down, imports and full garbage collections, which walk through
what other tests left, are not counted. A second is one of the machine that the limit was set on: a
loop is timed at the start, and again where a test seems too dear, so that a slow or busy machine
fails nothing that a fast one lets pass.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Generator
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tiers import MARKERS, tier_marks
from tests.waiting import children

LIMIT_S = 0.5
# The same test takes up to so many times its CPU time on a virtual machine whose neighbours are
# busy, of which the timed loop sees only a part: 1.6 was seen on 2026-11-23, and on 2026-11-29, of
# 17 tests that have kept the limit for weeks, up to 2.7 beyond the 1.3 of the loop. The tier stays
# honest, and nobody's run fails for what another machine did.
TOLERANCE = 3.0
# What `loop_s` takes on the 2-core AMD EPYC machine (Zen 4) where the limit was set.
REFERENCE_LOOP_S = 0.0100

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def loop_s() -> float:
    """CPU seconds of a fixed loop: the least of five, as everything else only adds."""
    return min(_timed_loop() for _ in range(5))


def _timed_loop() -> float:
    """Objects made, hashed and sorted: work that a neighbour slows as it slows tests."""
    began = time.thread_time()
    for _ in range(3):
        table = {str(number): [number] for number in range(15_000)}
        sorted(table, key=table.__getitem__, reverse=True)
    return time.thread_time() - began


def descendants_cpu_s(pid: int) -> float:
    """CPU seconds of the living processes under `pid` and of those that they have waited for."""
    total_s = 0.0
    waiting = list(_children(pid))
    while waiting:
        child = waiting.pop()
        try:
            stat = Path(f"/proc/{child}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        # utime, stime, cutime and cstime: fields 14 to 17 of proc(5), counted after the name.
        total_s += sum(map(int, stat.rpartition(")")[2].split()[11:15])) * _TICK_S
        waiting += _children(child)
    return total_s


def _children(pid: int) -> set[int]:
    """The children of a process; none of one that has ended."""
    try:
        return children(pid)
    except OSError:
        return set()


def cpu_s() -> float:
    """CPU seconds so far of this process and of all under it, those that ended included."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    return used + descendants_cpu_s(os.getpid())


class ImportClock:
    """The CPU time that this thread spends in importing modules, counted while it is installed."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._depth = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Time what Python's two file loaders execute."""
        for loader in (SourceFileLoader, ExtensionFileLoader):
            patch.setattr(loader, "exec_module", self._timed(loader.exec_module))
        create = ExtensionFileLoader.create_module
        patch.setattr(ExtensionFileLoader, "create_module", self._timed(create))

    def _timed(self, load: Any) -> Any:
        def timed(loader: Any, module: ModuleType) -> Any:
            self._depth += 1
            began = time.thread_time()
            try:
                return load(loader, module)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.spent_s += time.thread_time() - began

        return timed


class CollectionClock:
    """The CPU time of full garbage collections, counted while it is installed."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._began_s = 0.0

    def install(self) -> None:
        """Time them."""
        gc.callbacks.append(self._note)

    def remove(self) -> None:
        """Time them no more."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            if phase == "start":
                self._began_s = time.thread_time()
            else:
                self.spent_s += time.thread_time() - self._began_s


class CpuGuard:
    """The pytest plugin that fails an unmarked test which takes too much CPU."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._imports = ImportClock()
        self._collections = CollectionClock()
        self._patch = pytest.MonkeyPatch()
        self._start_loop_s = 0.0

    def pytest_sessionstart(self) -> None:
        """Time the loop, and begin to count imports."""
        self._start_loop_s = loop_s()
        self._imports.install(self._patch)
        self._collections.install()

    def pytest_sessionfinish(self) -> None:
        """Put Python's loaders back."""
        self._patch.undo()
        self._collections.remove()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure the call of a test, note it for the report, and hold it against the limit."""
        before_s, besides_before_s = cpu_s(), self._besides_s()
        result = yield
        used_s = cpu_s() - before_s - (self._besides_s() - besides_before_s)
        item.user_properties.append(("cpu_s", round(used_s, 4)))
        if self._limit_s and not tier_marks(item) and used_s > self._limit_s:
            self._refuse_if_dear(used_s)
        return result

    def _besides_s(self) -> float:
        """What is no part of a test's own CPU time."""
        return self._imports.spent_s + self._collections.spent_s

    def _refuse_if_dear(self, used_s: float) -> None:
        slowness = max(self._start_loop_s, loop_s()) / REFERENCE_LOOP_S
        # A machine that is faster than that of the limit does not make it stricter.
        allowed_s = self._limit_s * TOLERANCE * max(1.0, slowness)
        if used_s > allowed_s:
            pytest.fail(
                f"took {used_s:.2f} s of CPU; an unmarked test has {self._limit_s} s, and at most "
                f"{allowed_s:.2f} s on this machine now. Make it cheaper, or mark it with one of "
                f"{', '.join(MARKERS)}.",
                pytrace=False,
            )
