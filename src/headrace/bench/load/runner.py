"""One client at work: sends what its schedule says when it says so, and keeps what comes back.

While a run is on there is a timer, a task for each request and an append; bodies are read when it
is over (`replies` says which are read before). Whatever was due has a record in the end: a request
that the end of the run kept from being sent is one that was cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from headrace.bench.client.decode import Asked
from headrace.bench.client.endpoints import Endpoint
from headrace.bench.client.load_client import LoadClient
from headrace.bench.client.raw import RawReply
from headrace.bench.load.bookkeeping import (
    asked_of,
    fails_for_all,
    fails_visibly,
    unsent_record,
)
from headrace.bench.load.conversations import Conversation, Supply, with_answers
from headrace.bench.load.health import LoopWatch
from headrace.bench.load.plan import NS_PER_S, LoadPlan
from headrace.bench.load.prepared import Prepared
from headrace.bench.load.replies import HELD_BYTES, Replies
from headrace.bench.load.saturation_watch import SaturationWatch
from headrace.bench.load.schedule import Schedule, Send, make_schedules
from headrace.bench.record import RequestRecord
from headrace.bench.reply_journal import ReplyJournal
from headrace.bench.timer import Deadline, Timer

# Sends in one call of the timer; between calls the loop reads what has come.
_BURST = 64
# A request that was about to be sent when the run was cut off is caught in a later round.
_CUT_AGAIN_NS = 20_000_000

Ending = Literal["complete", "duration", "max_errors", "refused", "saturated", "interrupted"]


class Counts(NamedTuple):
    """Requests so far, measured and others. failed: by what shows without reading bodies, and
    by those that were read."""

    begun: int
    ended: int
    failed: int
    in_flight: int
    waiting: int


class LoadRunner:
    """A runner of one plan, once.

    begun_lag_ns: how late each measured request was taken up, after its time or, where it had to
    wait for others, after its turn had come.
    """

    def __init__(
        self,
        client: LoadClient,
        endpoint: Endpoint,
        plan: LoadPlan,
        conversations: Sequence[Conversation],
        warmup: Sequence[Conversation] = (),
        *,
        worker: int = 0,
        workers: int = 1,
        in_all: int | None = None,
        held_bytes: int = HELD_BYTES,
        journal_path: Path | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """plan: the whole one; of several clients each takes its share here. conversations, warmup:
        the client's share already, of `in_all` conversations; None: they are all.

        journal_path: where replies are kept while the run goes on; None: nowhere.
        """
        self._journal_path = journal_path
        self.plan = plan.share(worker, workers)
        first = plan.first_conversation(worker, workers)
        self.supply = Supply(conversations, worker=first, workers=workers, in_all=in_all)
        self._workload = (warmup, conversations)
        self._prepared = Prepared(endpoint)
        self.ending: Ending = "complete"
        self.begun_lag_ns: list[int] = []
        self.replies: Replies | None = None
        self.client = client
        self._endpoint = endpoint
        self._held_bytes = held_bytes
        self._clock_ns = clock_ns
        warmup_supply = Supply(warmup, worker=worker, workers=workers)
        self._schedules = make_schedules(self.plan, self.supply, warmup_supply)
        self._answers: dict[int, list[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: dict[int, Deadline] = {}
        self._waiting: deque[Send] = deque()
        self._unsent: list[RequestRecord] = []
        self._index = self._ended = self._failed = 0
        self._error: BaseException | None = None
        self._done = asyncio.Event()
        self._upcoming: Iterator[Send] = iter(())
        self._next: Send | None = None
        self._next_deadline: Deadline | None = None
        self._stopping = False
        self._measuring = self._succeeded = False
        self._keeps_up: SaturationWatch | None = None

    @property
    def counts(self) -> Counts:
        """For whoever watches."""
        in_flight = self._index - self._ended - len(self._unsent)
        return Counts(self._index, self._ended, self._failures, in_flight, len(self._waiting))

    @property
    def _failures(self) -> int:
        return self._failed + (0 if self.replies is None else self.replies.late_failures)

    def prepare(self) -> None:
        """Make the requests that can be made before the run."""
        for conversations in self._workload:
            self._prepared.make(conversations)

    async def run(self, origin_ns: int | None = None) -> list[RequestRecord]:
        """All records; times count from `origin_ns`, which is now unless given."""
        loop = asyncio.get_running_loop()
        self._timer = Timer(loop, self._clock_ns)
        self._origin_ns = self._phase_ns = self._clock_ns() if origin_ns is None else origin_ns
        secrets, kind = self._endpoint.secrets, self._endpoint.kind
        journal = None
        if self._journal_path is not None:
            journal = ReplyJournal(self._journal_path, kind, self._origin_ns, secrets)
        replies = Replies(kind, self._origin_ns, secrets, journal)
        self.replies = replies
        self.watch = LoopWatch(self._timer, self._clock_ns)
        self.watch.start()
        if self.plan.stop_when_saturated:
            self._keeps_up = SaturationWatch(
                self._timer, lambda: self.stop("saturated"), self._clock_ns
            )
            self._keeps_up.start()
        helpers = [asyncio.create_task(self._relieve(replies))]
        if journal is not None:
            helpers.append(asyncio.create_task(journal.file.write()))
        try:
            for number, schedule in enumerate(self._schedules):
                if number:
                    self._phase_ns = self._clock_ns()
                await self._run_phase(schedule)
        finally:
            self.watch.stop()
            if self._keeps_up is not None:
                self._keeps_up.stop()
            self._timer.close()
            for helper in helpers:
                helper.cancel()
            if journal is not None:
                journal.file.close()
        if self._error is not None:
            raise self._error
        return sorted([*replies.all(), *self._unsent], key=lambda one: one.index)

    def stop(self, ending: Ending = "interrupted") -> None:
        """Send nothing more. "interrupted" cuts off what is in flight, others give it the grace."""
        if not self._stopping:
            self._stopping = True
            self.ending = ending
            self._drop_due()
            if self._tasks and ending != "interrupted":
                grace_ns = round(self.plan.grace_s * NS_PER_S)
                self._timer.call_at_ns(self._clock_ns() + grace_ns, self._cut)
        if ending == "interrupted":
            self.ending = ending
            self._cut()
        self._check_done()

    def _cut(self) -> None:
        self.client.cancel_all()
        if self._tasks:
            self._timer.call_at_ns(self._clock_ns() + _CUT_AGAIN_NS, self._cut)

    async def _run_phase(self, schedule: Schedule) -> None:
        if self._stopping:
            return
        self._schedule = schedule
        self._done.clear()
        self._upcoming = schedule.begin()
        self._advance()
        self._check_done()
        await self._done.wait()

    def _advance(self) -> None:
        """Have the next request of the schedule's own come at its time."""
        self._next = next(self._upcoming, None)
        self._next_deadline = None
        if self._next is not None:
            self._begin_measuring(self._next)
            self._next_deadline = self._timer.call_at_ns(self._at(self._next), self._due)

    def _begin_measuring(self, send: Send) -> None:
        if send.measured and not self._measuring:
            self._measuring = True
            if self.plan.duration_s is not None:
                end_ns = self._at(send) + round(self.plan.duration_s * NS_PER_S)
                self._timer.call_at_ns(end_ns, lambda: self.stop("duration"))

    def _at(self, send: Send) -> int:
        """A time of this phase on the clock."""
        return self._phase_ns + send.at_ns

    def _due(self) -> None:
        for _ in range(_BURST):
            if self._stopping or self._next is None:
                break
            if self._at(self._next) > self._clock_ns():
                self._next_deadline = self._timer.call_at_ns(self._at(self._next), self._due)
                return
            self._admit(self._next)
            self._next = next(self._upcoming, None)
            if self._next is not None:
                self._begin_measuring(self._next)
        if self._next is not None and not self._stopping:
            self._next_deadline = self._timer.call_at_ns(self._at(self._next), self._due)
        self._check_done()

    def _admit(self, send: Send) -> None:
        """Its time has come: send it, or have it wait for others to end."""
        if self._keeps_up is not None and send.measured:
            self._keeps_up.came(self._at(send))
        limit = self.plan.max_in_flight
        if limit is not None and len(self._tasks) >= limit:
            self._waiting.append(send)
        else:
            self._start(send, self._at(send))

    def _start(self, send: Send, ready_ns: int) -> None:
        asked = self._asked(send)
        task = asyncio.get_running_loop().create_task(self._send(send, asked, ready_ns))
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _asked(self, send: Send) -> Asked:
        index = self._index
        self._index += 1
        return asked_of(send, index, self._at(send) - self._origin_ns)

    async def _send(self, send: Send, asked: Asked, ready_ns: int) -> None:
        item = with_answers(send.item, self._answers.get(send.conversation, ()))
        request = self._prepared.of(item)
        raw = await self.client.send(request)
        assert self.replies is not None
        self._ended += 1
        if send.measured:
            self.begun_lag_ns.append(max(0, raw.begun_ns - ready_ns))
        failed = fails_visibly(raw)
        if send.has_next:
            said = await self.replies.add_turn(asked, raw, stream=request.stream)
            failed = said is None
            self._answers.setdefault(send.conversation, []).append(said or "")
        else:
            self.replies.add(asked, raw, stream=request.stream, failed=failed)
            self._answers.pop(send.conversation, None)
        if self._keeps_up is not None and send.measured:
            self._keeps_up.over(self._at(send), raw.end_ns, failed=failed)
        self._succeeded |= not failed
        if not self._succeeded and not self._stopping and fails_for_all(raw):
            self.stop("refused")
        self._count_failure(failed=failed)
        self._follow(send, raw, failed=failed)

    def _follow(self, send: Send, raw: RawReply, *, failed: bool) -> None:
        if self._stopping:
            return
        after = self._schedule.after(send, raw.end_ns - self._phase_ns, failed=failed)
        if after is None:
            return
        self._begin_measuring(after)
        if self._at(after) <= self._clock_ns():
            self._admit(after)
            return

        def come() -> None:
            del self._pending[id(after)]
            self._admit(after)

        self._pending[id(after)] = self._timer.call_at_ns(self._at(after), come)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error  # a prompt that the endpoint cannot take
            self.stop()
        limit = self.plan.max_in_flight
        while self._waiting and limit is not None and len(self._tasks) < limit:
            self._start(self._waiting.popleft(), self._clock_ns())
        self._check_done()

    def _check_done(self) -> None:
        left = self._tasks or self._waiting or self._pending
        if not left and (self._stopping or self._next is None):
            self._done.set()

    def _drop_due(self) -> None:
        """Nothing is sent any more; what should have been by now is written down as cancelled."""
        for deadline in (*self._pending.values(), self._next_deadline):
            if deadline is not None:
                deadline.cancel()
        self._pending.clear()
        now_ns = self._clock_ns()
        due = list(self._waiting)
        self._waiting.clear()
        while self._next is not None and self._at(self._next) < now_ns:
            due.append(self._next)
            self._next = next(self._upcoming, None)
        self._next = None
        for send in due:
            self._unsent.append(unsent_record(self._asked(send), now_ns - self._origin_ns))

    def _count_failure(self, *, failed: bool) -> None:
        self._failed += failed
        most = self.plan.max_errors
        if most is not None and self._failures > most and not self._stopping:
            self.stop("max_errors")

    def show(self) -> RequestRecord | None:
        """A reply for whoever watches, as `Replies.show`; failures that it shows are counted."""
        record = None if self.replies is None else self.replies.show()
        self._count_failure(failed=False)
        return record

    async def _relieve(self, replies: Replies) -> None:
        """Decode when too much is held: a reply between two rounds of the loop."""
        while True:
            await asyncio.sleep(1)
            if replies.held_bytes > self._held_bytes:
                while replies.held_bytes > self._held_bytes // 2:
                    replies.read(1)
                    await asyncio.sleep(0)
