"""A run from its first look at the server to its record: client, metrics, live view, Ctrl-C.

Ctrl-C ends the run and keeps what there is; a second one ends the process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.bench.load.client_run import ClientJob, ClientOutcome, ClientRun
from headrace.bench.load.live import REFRESH_S, View
from headrace.bench.load.progress import Progress
from headrace.bench.load.replies import SHOWN_AT_ONCE
from headrace.bench.load.runner import Ending
from headrace.bench.load.server_metrics import MetricsWatch
from headrace.bench.load.workers import LEAD_NS, Workers
from headrace.bench.record import RunMetadata, RunRecord
from headrace.bench.signals import stops_at_signal


class _Client(Protocol):
    async def open(self) -> None: ...

    async def run(self, origin_ns: int | None = None) -> ClientOutcome: ...

    def stop(self, ending: Ending = "interrupted") -> None: ...

    async def progress(self, read: int = SHOWN_AT_ONCE) -> Progress: ...


class Measured(NamedTuple):
    """A finished run, with how it ended."""

    run: RunRecord
    ending: Ending
    repeats: bool
    lost: int
    """Client processes that died."""


async def measure(
    job: ClientJob,
    *,
    about: RunMetadata,
    view: View,
    processes: int = 1,
    metrics_path: str | None = None,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> Measured:
    """metrics_path: where the server tells of itself; None: it is not asked.

    The record's `about` is the given one with how the run ended and whether prompts were repeated.
    Raises ConfigError for a prompt that the endpoint cannot take.
    """
    workers = Workers(job, processes, clock_ns) if processes > 1 else None
    client: _Client = ClientRun(job, clock_ns) if workers is None else workers
    metrics = MetricsWatch(job.endpoint, metrics_path, clock_ns=clock_ns) if metrics_path else None
    with stops_at_signal(client.stop) as interrupted:
        if metrics is not None:
            await metrics.start()
        await client.open()
        # Several processes need a moment to hear of it.
        origin_ns = clock_ns() + (0 if workers is None else LEAD_NS)
        if interrupted.is_set():
            client.stop()
        looking = asyncio.create_task(_look(client, view, clock_ns))
        try:
            outcome = await client.run(origin_ns)
        finally:
            looking.cancel()
            view.close()
            if metrics is not None:
                await metrics.stop()
    readings = metrics.readings if metrics is not None else []
    facts: RunMetadata = {"ending": outcome.ending, "prompts_repeat": outcome.repeats}
    if workers is not None and workers.lost:
        facts["lost_client_processes"] = workers.lost
    run = RunRecord(
        about={**about, **facts},
        requests=outcome.records,
        health=outcome.health,
        server_metrics=tuple((at_ns - origin_ns, text) for at_ns, text in readings),
    )
    return Measured(run, outcome.ending, outcome.repeats, workers.lost if workers else 0)


async def _look(client: _Client, view: View, clock_ns: Callable[[], int]) -> None:
    began_ns = clock_ns()
    while True:
        await asyncio.sleep(REFRESH_S)
        told = await client.progress(SHOWN_AT_ONCE if view.reads else 0)
        view.show((clock_ns() - began_ns) / 1e9, told)
