"""Several client processes that do one run together, each every k-th request of it.

They share the machine's monotonic clock and begin at the same moment, so that their records are
merged by time alone. A process that dies takes its records with it: then the others are stopped,
what they have is kept, and `lost` says how many died.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable

import msgspec

from headrace.bench.load import health
from headrace.bench.load.client_run import ClientJob, ClientOutcome
from headrace.bench.load.frames import (
    Finished,
    FromClient,
    Go,
    Look,
    Ready,
    Standing,
    Start,
    Stop,
    ToClient,
    read_from_client,
    send,
)
from headrace.bench.load.progress import Progress, added
from headrace.bench.load.replies import SHOWN_AT_ONCE
from headrace.bench.load.runner import Counts, Ending
from headrace.bench.record import ClientHealth, RequestRecord
from headrace.errors import ConfigError, HeadraceError

MAX_PROCESSES = 64
# For the word to go to reach every process before the first request is due.
LEAD_NS = 200_000_000
_NOTHING = Progress(counts=Counts(0, 0, 0, 0, 0))


class _Worker:
    """One process. `progress` is what it said last; `finished` is None until it has."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.progress = _NOTHING
        self.fresh = False
        self.finished: Finished | None = None

    def say(self, message: ToClient) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            send(self._process.stdin, message)

    async def start(self, job: ClientJob) -> None:
        """Hand over a job, of which nothing is kept here."""
        self.say(Start(job))
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has died, which `hear` finds
            await self._process.stdin.drain()

    @property
    def ending(self) -> Ending | None:
        """Of its part of the run; None before it has finished, and where it could not."""
        if self.finished is None or self.finished.outcome is None:
            return None
        return self.finished.outcome.ending

    @property
    def pid(self) -> int:
        return self._process.pid

    async def hear(self) -> FromClient | None:
        assert self._process.stdout is not None
        try:
            return await read_from_client(self._process.stdout)
        except asyncio.IncompleteReadError:
            return None

    async def listen(self) -> bool:
        """Until it has finished, or died: whether it finished."""
        while (message := await self.hear()) is not None:
            if isinstance(message, Standing):
                self.progress, self.fresh = message.progress, True
            elif isinstance(message, Finished):
                self.finished = message
                return True
        return False

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None and self.finished is None:
            self._process.kill()
        await self._process.wait()


class Workers:
    """A run on `processes` clients; the same calls as `ClientRun`."""

    def __init__(
        self, job: ClientJob, processes: int, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        if not 1 <= processes <= MAX_PROCESSES:
            raise ConfigError(f"--processes {processes} is not from 1 to {MAX_PROCESSES}")
        if job.plan.kind == "closed" and len(job.plan.times_ns) < processes:
            raise ConfigError(
                f"--processes {processes}: more than the {len(job.plan.times_ns)} of "
                "--concurrency; lower one or raise the other"
            )
        self._job = job
        self._processes = processes
        self._clock_ns = clock_ns
        self._workers: list[_Worker] = []
        self.lost = 0

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [worker.pid for worker in self._workers]

    async def open(self) -> None:
        """Start the processes and have them connect."""
        for _ in range(self._processes):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headrace.bench.load.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # Ctrl-C is for this process, which tells the others.
                start_new_session=True,
            )
            self._workers.append(_Worker(process))
        for number, worker in enumerate(self._workers):
            # One at a time: the text of all of them would be in memory once more.
            await worker.start(self._job.share(number, self._processes))
        for number, worker in enumerate(self._workers, start=1):
            if not isinstance(await worker.hear(), Ready):
                await self._close()
                raise HeadraceError(
                    f"client process {number} of {self._processes} ended before the run; is "
                    "there enough memory? Use fewer --processes"
                )

    async def run(self, origin_ns: int | None = None) -> ClientOutcome:
        """All of them to the end. Raises HeadraceError where no process has anything."""
        origin = self._clock_ns() + LEAD_NS if origin_ns is None else origin_ns
        for worker in self._workers:
            worker.say(Go(origin))
        try:
            await asyncio.gather(*(self._listen(worker) for worker in self._workers))
        finally:
            await self._close()
        finished = [worker.finished for worker in self._workers if worker.finished is not None]
        for one in finished:
            if one.error:
                raise ConfigError(one.error)
        outcomes = [one.outcome for one in finished if one.outcome is not None]
        if not outcomes:
            raise HeadraceError("every client process ended before the run did")
        return _merged(outcomes)

    async def _listen(self, worker: _Worker) -> None:
        if not await worker.listen():
            self.lost += 1
            self.stop("max_errors")
        elif worker.ending in ("refused", "saturated"):
            self.stop(worker.ending)

    def stop(self, ending: Ending = "interrupted") -> None:
        """End the run before its time."""
        for worker in self._workers:
            if worker.finished is None:
                worker.say(Stop(ending))

    async def progress(self, read: int = SHOWN_AT_ONCE) -> Progress:
        """As they said last; asks them for the next time, and ends a run with too many errors."""
        found = []
        for worker in self._workers:
            told = worker.progress
            if not worker.fresh:
                told = msgspec.structs.replace(told, ttft_ms=(), tpot_ms=())
            worker.fresh = False
            found.append(told)
            if worker.finished is None:
                worker.say(Look(-(-read // self._processes)))
        together = added(found)
        most = self._job.plan.max_errors
        if most is not None and together.counts.failed > most:
            self.stop("max_errors")
        return together

    async def _close(self) -> None:
        for worker in self._workers:
            await worker.close()


def _merged(outcomes: list[ClientOutcome]) -> ClientOutcome:
    """Records in order of their intended times, numbered anew; the ending of most weight."""
    records: list[RequestRecord] = sorted(
        (record for one in outcomes for record in one.records),
        key=lambda record: (record.intended_ns, record.index),
    )
    order: tuple[Ending, ...] = (
        "interrupted",
        "max_errors",
        "refused",
        "saturated",
        "duration",
        "complete",
    )
    endings = {one.ending for one in outcomes}
    return ClientOutcome(
        records=tuple(
            msgspec.structs.replace(record, index=index) for index, record in enumerate(records)
        ),
        health=ClientHealth(
            schedule_lag_ns=tuple(lag for one in outcomes for lag in one.health.schedule_lag_ns),
            loop_lag_ns=tuple(lag for one in outcomes for lag in one.health.loop_lag_ns),
            cpu_share=tuple(share for one in outcomes for share in one.health.cpu_share),
            collections=health.added(
                one.health.collections for one in outcomes if one.health.collections is not None
            ),
        ),
        ending=next(one for one in order if one in endings),
        repeats=any(one.repeats for one in outcomes),
    )
