"""Workers that end again and again, and figures of those that ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.workers import supervisor as supervising
from headrace.gateway.workers.figures import Sum, counted
from headrace.gateway.workers.shared import Shared
from headrace.gateway.workers.supervisor import Supervisor, WorkersFailedError
from headrace.http.listen import listen
from headrace.telemetry.series import CounterSeries, HistogramSeries

TEXT = "providers: {p: 'http://127.0.0.1:9'}\nmodels: {chat: p/m}\naccess: {require_key: false}\n"


@pytest.mark.process
def test_workers_that_die_again_and_again_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def dies(
        listening: socket.socket,
    ) -> tuple[asyncio.subprocess.Process, socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", "exit(3)")
        return process, ours

    async def check() -> None:
        counters = MemoryCounters()
        shared = Shared(
            Accounts(counters, now_ns=lambda: 0, random_bytes=bytes),
            counters,
            None,
            on_alert=lambda alert: None,
            on_breaker=lambda target, state, why: None,
            on_refused=lambda told: None,
            on_taken_out=lambda told: None,
            own_pid=os.getpid(),
        )
        with listen("127.0.0.1", 0, shares=True) as sock:
            path = tmp_path / "gateway.yaml"
            supervisor = Supervisor(shared, [sock], path, TEXT, clock_s=lambda: 0.0, sleep=sleep)
            await supervisor.start()
            try:
                monkeypatch.setattr(supervising, "spawn", dies)
                os.kill(shared.members[0].pid, signal.SIGKILL)
                with pytest.raises(WorkersFailedError, match="worker 0 ended 7 times in a row"):
                    await asyncio.wait_for(supervisor.failed, 60)
            finally:
                await supervisor.close()

    asyncio.run(check())
    assert waited == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]


@pytest.mark.process
def test_a_first_worker_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    async def check() -> None:
        counters = MemoryCounters()
        shared = Shared(
            Accounts(counters, now_ns=lambda: 0, random_bytes=bytes),
            counters,
            None,
            on_alert=lambda alert: None,
            on_breaker=lambda target, state, why: None,
            on_refused=lambda told: None,
            on_taken_out=lambda told: None,
            own_pid=os.getpid(),
        )
        with listen("127.0.0.1", 0, shares=True) as sock:
            path = tmp_path / "gateway.yaml"
            supervisor = Supervisor(shared, [sock], path, "models: [", clock_s=lambda: 0.0)
            with pytest.raises(WorkersFailedError, match="before it served: exit status 1"):
                await supervisor.start()
            await supervisor.close()

    asyncio.run(check())


def test_figures_add_up_whatever_labels_each_has() -> None:
    def series(**values: int) -> tuple[CounterSeries, HistogramSeries]:
        counter = CounterSeries("c", "", ("l",))
        histogram = HistogramSeries("h", "", ("l",), (1.0, 2.0))
        for label, count in values.items():
            counter.add((label,), count)
            for _ in range(count):
                histogram.observe((label,), 1.5)
        return counter, histogram

    whole = Sum(series())
    for one in (series(a=2, b=1), series(b=3)):
        whole.add(*counted(one))
    counter, histogram = whole.series
    assert counter.values == {("a",): 2, ("b",): 4}
    assert isinstance(histogram, HistogramSeries)
    assert histogram.values["b",].counts == [0, 4, 0]
    assert histogram.values["b",].total == 6.0
    # What was added to is not what was added.
    assert series(a=1)[0].values == {("a",): 1}
