"""Rounds of visits by a schedule, written down as they are made.

Providers are measured one after another, so that none has another's load on this machine's line.
One that fails does not stop the others; one that refuses its key is paused until the command is
started again. Clocks and waiting are handed in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.bench.client.endpoints import Endpoint
from headrace.bench.load.tokenization import ClientTokenization, counted
from headrace.bench.providers.identity import Facts
from headrace.bench.providers.live import visit_line
from headrace.bench.providers.prompts import PromptSource
from headrace.bench.providers.rows import Phase, RequestRow, request_row
from headrace.bench.providers.samples import latencies_ms, median
from headrace.bench.providers.schedule import Schedule, order
from headrace.bench.providers.settings import ProvidersFile
from headrace.bench.providers.store import OpenRound, Store
from headrace.bench.providers.visit import Visit, Visitor
from headrace.bench.record import RequestRecord
from headrace.bench.signals import stops_at_signal
from headrace.bench.verdict import client_verdict

# The clock may be set, or the machine asleep: it is looked at again after so long.
_LONGEST_WAIT_S = 30.0

Wait = Callable[[asyncio.Event, float], Awaitable[None]]


async def wait_for(stopped: asyncio.Event, wait_s: float) -> None:
    """Until `stopped`, and `wait_s` at most."""
    try:
        async with asyncio.timeout(wait_s):
            await stopped.wait()
    except TimeoutError:
        return


@dataclass(slots=True)
class Tally:
    """The counts of one provider in this session."""

    visits: int = 0
    requests: int = 0
    failed: int = 0
    paused: str = ""
    """Why the provider is paused, if it is."""

    @property
    def succeeded(self) -> int:
        """Requests that were answered in full."""
        return self.requests - self.failed


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a session. facts: of each provider, with notes.

    goes_on: the schedule began in an earlier session; otherwise it begins when this one does.
    """

    file: ProvidersFile
    endpoints: Mapping[str, Endpoint]
    prompts: PromptSource
    tokenization: ClientTokenization
    workload: Facts
    facts: Mapping[str, tuple[Facts, Facts]]
    schedule: Schedule
    goes_on: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)


class Campaign:
    """A session. `tallies` by provider; `interrupted`: by Ctrl-C or SIGTERM."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        *,
        now: Callable[[], float] = time.time,
        wait: Wait = wait_for,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        tell: Callable[[str], None] = lambda line: None,
        local: Callable[[float], str] = str,
        after_round: Callable[[], None] = lambda: None,
    ) -> None:
        """tell: hears a line about each visit and each wait. local: a time as people read it."""
        self.tallies = {name: Tally() for name in plan.endpoints}
        self.interrupted = False
        self._plan = plan
        self._store = store
        self._now = now
        self._wait = wait
        self._clock_ns = clock_ns
        self._tell = tell
        self._local = local
        self._after_round = after_round
        self._visitor: Visitor | None = None

    async def run(self, *, once: bool = False) -> None:
        """Until the schedule ends, it is stopped, or nobody is left who takes the key.

        once: one round now, whatever the schedule says.
        """
        with stops_at_signal(self._stop) as stopped:
            self._stopped = stopped
            began_at = self._now()
            plan = self._plan
            self._schedule = plan.schedule
            if not plan.goes_on:
                self._schedule = plan.schedule._replace(origin_at=began_at)
            self._session, self._workload, self._ids = self._store.begin_session(
                plan.workload, plan.facts, self._schedule, plan.about, began_at
            )
            if once:
                await self._round(None, began_at)
            else:
                await self._run_schedule(began_at)
            self.interrupted = stopped.is_set()
            self._store.end_session(self._session, self._now())

    def _stop(self) -> None:
        if self._visitor is not None:
            self._visitor.stop()

    async def _run_schedule(self, looked_at: float) -> None:
        schedule = self._schedule
        last = self._store.last_slot(schedule)
        opened = self._store.open_round()
        is_current = last is not None and schedule.is_running(last, looked_at)
        if last is not None and is_current and opened is not None and opened.slot == last:
            self._tell(f"round {opened.number} was cut off: its other providers are measured now")
            await self._round(last, schedule.due_at(last), opened)
            looked_at = self._now()
        while not self._stopped.is_set() and not self._all_paused():
            slot = schedule.next_slot(looked_at, last)
            if slot is None:
                self._tell("the schedule has ended; set a longer duration to continue it")
                return
            due_at = schedule.due_at(slot)
            if last is not None and slot > last + 1:
                missed = slot - last - 1
                told = "1 round was" if missed == 1 else f"{missed} rounds were"
                self._tell(f"{told} missed; missed rounds are not made up for")
            if due_at > self._now():
                self._tell(f"next round at {self._local(due_at)}")
            await self._wait_until(due_at)
            looked_at = self._now()
            if looked_at >= schedule.due_at(slot + 1) or self._stopped.is_set():
                continue
            await self._round(slot, due_at)
            last, looked_at = slot, self._now()
        if self._all_paused() and not self._stopped.is_set():
            self._tell("every provider is paused, so there is nothing left to measure")

    async def _wait_until(self, due_at: float) -> None:
        while not self._stopped.is_set() and (left_s := due_at - self._now()) > 0:
            await self._wait(self._stopped, min(left_s, _LONGEST_WAIT_S))

    def _all_paused(self) -> bool:
        return all(one.paused for one in self.tallies.values())

    async def _round(
        self, slot: int | None, due_at: float, opened: OpenRound | None = None
    ) -> None:
        if opened is not None:
            round_id, number = opened.id, opened.number
        else:
            round_id, number = self._store.begin_round(
                self._session, self._workload, slot, due_at, self._now()
            )
        measured = opened.measured if opened is not None else frozenset()
        names = order(list(self._plan.endpoints), number, self._plan.file.seed)
        for place, name in enumerate(names):
            if self._ids[name] not in measured and not self._stopped.is_set():
                await self._measure(name, round_id, number, place)
        if not self._stopped.is_set():
            self._store.end_round(round_id, self._now())
        self._after_round()

    async def _measure(self, name: str, round_id: int, number: int, place: int) -> None:
        tally = self.tallies[name]
        began_at = self._now()
        if tally.paused:
            self._add(name, round_id, place, began_at, Visit("paused"))
            return
        visitor = Visitor(
            self._plan.endpoints[name],
            timeout_s=self._plan.file.timeout_s,
            clock_ns=self._clock_ns,
        )
        self._visitor = visitor
        if self._stopped.is_set():
            return
        visit = await visitor.run(self._plan.prompts.round())
        self._visitor = None
        rows = self._add(name, round_id, place, began_at, visit)
        ended = [row for row in rows if row.error != "cancelled"]
        tally.visits += 1
        tally.requests += len(ended)
        tally.failed += sum(row.error is not None for row in ended)
        self._tell(f"round {number}: {name}: {visit_line(visit.outcome, visit.message, rows)}")
        if visit.remedy is not None:
            self._tell(f"{name}: write {visit.remedy.key} for it in the file")
        if visit.outcome == "refused":
            tally.paused = visit.message
            self._tell(f"{name} is paused: {self._remedy(name)}, and start the command again")

    def _remedy(self, name: str) -> str:
        of = next(one for one in self._plan.file.providers if one.name == name)
        if of.api_key_env is None and not of.headers_env:
            return "name the environment variable that has its key in api_key_env"
        variables = [*([of.api_key_env] if of.api_key_env else []), *of.headers_env.values()]
        return f"check the key in {' and '.join(variables)}"

    def _add(
        self, name: str, round_id: int, place: int, began_at: float, visit: Visit
    ) -> list[RequestRow]:
        """Write it down; its rows."""
        tokenization = self._plan.tokenization
        phases: tuple[tuple[Phase, tuple[RequestRecord, ...]], ...] = (
            ("single", visit.single),
            ("batch", visit.batch),
        )
        rows = [
            request_row(phase, record)
            for phase, records in phases
            for record in counted(records, tokenization, prompts=True)
        ]
        ttft_ms = median(latencies_ms(rows, "ttft_ns"))
        # Without a figure there is none that the client could have spoilt.
        bound = None
        if ttft_ms is not None:
            bound = client_verdict(visit.health, ttft_ms * 1e6).client_bound
        self._store.add_visit(
            round_id,
            self._ids[name],
            place=place,
            began_at=began_at,
            ended_at=self._now(),
            outcome=visit.outcome,
            message=self.tallies[name].paused if visit.outcome == "paused" else visit.message,
            client_bound=bound,
            requests=rows,
        )
        return rows
