"""One client process's part of a run: connections, the runner, and what it found.

The same whether it is the only client, in the process of the command, or one of several.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from headrace.bench.client.endpoints import Endpoint, get_request
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.load_client import LoadClient
from headrace.bench.journal import client_file
from headrace.bench.load.conversations import Conversation, share
from headrace.bench.load.health import CollectionWatch
from headrace.bench.load.plan import LoadPlan
from headrace.bench.load.progress import Progress, progress
from headrace.bench.load.replies import SHOWN_AT_ONCE
from headrace.bench.load.runner import Ending, LoadRunner
from headrace.bench.record import ClientHealth, RequestRecord

# Beyond it connections are made when they are needed; a server's backlog is often no longer.
_OPENED_AT_ONCE = 128


class ClientJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of client number `worker` of `workers`. `plan` is the whole run's; conversations
    and warmup are the client's share, of `in_all` conversations; None: they are all.

    journal: folder in which replies are kept while the run goes on; None: nowhere.
    """

    endpoint: Endpoint
    plan: LoadPlan
    conversations: tuple[Conversation, ...]
    warmup: tuple[Conversation, ...] = ()
    limits: ClientLimits = ClientLimits()
    worker: int = 0
    workers: int = 1
    in_all: int | None = None
    journal: str | None = None

    def share(self, worker: int, workers: int) -> ClientJob:
        """The part of client number `worker` of so many."""
        first = self.plan.first_conversation(worker, workers)
        return msgspec.structs.replace(
            self,
            conversations=tuple(share(self.conversations, first, workers)),
            warmup=tuple(share(self.warmup, worker, workers)),
            worker=worker,
            workers=workers,
            in_all=len(self.conversations),
        )


class ClientOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one client process."""

    records: tuple[RequestRecord, ...]
    health: ClientHealth
    ending: Ending
    repeats: bool
    """Prompts were sent more than once, because there were too few."""


class ClientRun:
    """One run of a client's job. It is made on the event loop it runs on."""

    def __init__(self, job: ClientJob, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._job = job
        origin = get_request(job.endpoint, "/").origin
        self._collections = CollectionWatch(clock_ns)
        # What a caller froze stays frozen: thawing it would make its next full collections long.
        self._caller_froze = False
        self._client = LoadClient(origin, job.limits, clock_ns=clock_ns)
        self._runner = LoadRunner(
            self._client,
            job.endpoint,
            job.plan,
            job.conversations,
            job.warmup,
            worker=job.worker,
            workers=job.workers,
            in_all=job.in_all,
            journal_path=None
            if job.journal is None
            else client_file(Path(job.journal), job.worker),
            clock_ns=clock_ns,
        )

    async def open(self) -> None:
        """Make requests, connect for the users of a closed loop, and tidy up, so that no request
        waits for it."""
        self._runner.prepare()
        # Later collections look at none of what is there now: they would delay sends.
        gc.collect()
        self._caller_froze = gc.get_freeze_count() > 0
        gc.freeze()
        plan = self._runner.plan
        if plan.kind == "closed":
            await self._client.open(min(len(plan.times_ns), _OPENED_AT_ONCE))

    async def run(self, origin_ns: int | None = None) -> ClientOutcome:
        """From `origin_ns` of the clock, or now, to the end."""
        self._collections.start()
        try:
            records = await self._runner.run(origin_ns)
        finally:
            self._collections.stop()
            if not self._caller_froze:
                gc.unfreeze()
            await self._client.close()
            await asyncio.sleep(0)
        watch, share = self._runner.watch, self._runner.watch.cpu_share
        return ClientOutcome(
            records=tuple(records),
            health=ClientHealth(
                schedule_lag_ns=tuple(self._runner.begun_lag_ns),
                loop_lag_ns=tuple(watch.lags_ns),
                cpu_share=() if share is None else (share,),
                collections=self._collections.collections,
            ),
            ending=self._runner.ending,
            repeats=self._runner.supply.repeats,
        )

    def stop(self, ending: Ending = "interrupted") -> None:
        """End the run before its time; what there is, is kept."""
        self._runner.stop(ending)

    async def progress(self, read: int = SHOWN_AT_ONCE) -> Progress:
        """How it stands, by so many replies, one in a round of the loop; 0: without any."""
        found: list[RequestRecord] = []
        while len(found) < read and (record := self._runner.show()) is not None:
            found.append(record)
            await asyncio.sleep(0)
        return progress(self._runner.counts, found)
