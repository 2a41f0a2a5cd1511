"""What workers share, held by their parent: counters, ledger, figures, news for each other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.alert import Alert
from headrace.gateway.accounts.counters import Counted, Spent
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.in_time import InTime
from headrace.gateway.ledger.store import LedgerStore
from headrace.gateway.routing.variants import TakenOut
from headrace.gateway.serving.entry import Entry
from headrace.gateway.targets.auth import OnRefused
from headrace.gateway.targets.health import OnBreaker
from headrace.gateway.telemetry.standing import Standing
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.gateway.workers import messages
from headrace.gateway.workers.figures import Sum
from headrace.gateway.workers.link import DEFAULT_TIMEOUT_S, LinkLostError
from headrace.gateway.workers.member import Member
from headrace.gateway.workers.merged import merged
from headrace.gateway.workers.messages import Message

logger = logging.getLogger(__name__)

# How long a worker's question waits for the store: well below the worker's own wait for an answer,
# because a worker that hears nothing in time considers the parent lost.
_STORE_S = DEFAULT_TIMEOUT_S / 2

_NO_STANDING = Standing(ready=False, models={}, providers={}, accounts=None)


class Shared:
    """The shared state of workers.

    `counters` is None if Redis counts; `ledger` is None without one. `on_alert` gets each budget's
    alert. `on_breaker` is called for a target when its breaker opens in the first worker and closes
    in the last. `on_refused` is called for each worker's report of a refused key, `on_taken_out`
    when the first worker takes out an A/B variant. `ending` says that workers end on request.
    """

    def __init__(
        self,
        accounts: Accounts,
        counters: MemoryCounters | None,
        ledger: LedgerStore | None,
        *,
        on_alert: Callable[[Alert], None],
        on_breaker: OnBreaker,
        on_refused: OnRefused,
        on_taken_out: Callable[[TakenOut], None],
        own_pid: int,
    ) -> None:
        self._accounts = accounts
        self._counters = counters
        self._ledger = ledger
        self._takers: tuple[Callable[[Entry], None], ...] = ()
        if ledger is not None:
            self.hear(ledger.take)
        self._on_alert = on_alert
        self._on_breaker = on_breaker
        self._on_refused = on_refused
        self._on_taken_out = on_taken_out
        self._variants_out: set[tuple[str, str]] = set()
        self._own_pid = own_pid
        self._like = Telemetry().series
        self._retired = Sum(self._like)
        self._lost_before = 0
        self._tasks: set[asyncio.Future[object]] = set()
        self.members: dict[int, Member] = {}
        self.replaced = 0
        self.ending = False

    def hear(self, taker: Callable[[Entry], None]) -> None:
        """Send each ledger line to `taker` from now on; it must not wait."""
        self._takers = (*self._takers, taker)

    def serving(self) -> list[Member]:
        """Workers that answer requests, by number."""
        serving = [member for member in self.members.values() if member.is_serving]
        return sorted(serving, key=lambda member: member.number)

    def on_question(self, member: Member, message: Message) -> Message | Awaitable[Message]:
        """Answer a worker's question."""
        if isinstance(message, messages.Reserve):
            return self._reserve(message)
        if isinstance(message, messages.End):
            return self._end(message)
        if isinstance(message, messages.First):
            return self._first(message)
        if isinstance(message, messages.Remember):
            return self._remember(message)
        if isinstance(message, messages.Remembers):
            return self._remembers(message)
        if isinstance(message, messages.Read):
            return self._read(message)
        if isinstance(message, messages.AskMetrics):
            return self._metrics()
        if isinstance(message, messages.AskHealth):
            return self._health()
        return messages.Done("" if isinstance(message, messages.Ping) else "not a question")

    def on_news(self, member: Member, message: Message) -> None:
        """Handle a worker's news."""
        if isinstance(message, messages.Lines):
            for entry in message.entries:
                for take in self._takers:
                    take(entry)
        elif isinstance(message, messages.End):
            self._end(message)
        elif isinstance(message, messages.Remember):
            self._do(self._remember(message))
        elif isinstance(message, messages.SpentHere):
            self._add_spent(message)
        elif isinstance(message, messages.BudgetAlert):
            self._on_alert(message.alert)
        elif isinstance(message, messages.Breaker):
            self._breaker(member, message)
        elif isinstance(message, messages.KeyRefused):
            self._on_refused(message.told)
        elif isinstance(message, messages.VariantOut):
            side = message.told.model, message.told.variant
            if side not in self._variants_out:
                self._variants_out.add(side)
                self._on_taken_out(message.told)
        elif isinstance(message, messages.Sticks):
            for other in self.serving():
                if other is not member and other.link is not None:
                    other.link.tell(message)

    def on_gone(self, member: Member) -> None:
        """A worker has ended: its figures go on to count, its reservations are undone."""
        self.members.pop(member.number, None)
        if member.figures is not None:
            self._retired.add(member.figures.counters, member.figures.histograms)
            self._lost_before += member.figures.lost
        if member.owner is not None:
            self._do(self._give_back(member.number, member.owner))
        for target in () if self.ending else member.open_breakers:
            if not any(target in other.open_breakers for other in self.members.values()):
                self._on_breaker(target, "closed", "")

    def begin_afresh(self) -> None:
        """Start breakers and A/B tests again, as the configuration was read again."""
        self._variants_out.clear()
        for member in self.members.values():
            member.open_breakers.clear()

    async def figures(self) -> list[tuple[Member, messages.Figures]]:
        """The latest figures of each serving worker."""
        await asyncio.gather(*(_refresh(member) for member in self.serving()))
        # Those that ended meanwhile are among the retired by now.
        return [(member, member.figures) for member in self.serving() if member.figures is not None]

    def parts(self) -> dict[str, Any]:
        """Further parts of /health."""
        parts: dict[str, Any] = {
            "workers": [
                {
                    "number": member.number,
                    "pid": member.pid,
                    "in_flight": 0 if member.figures is None else member.figures.in_flight,
                    "breakers_open": sorted(member.open_breakers),
                }
                for member in self.serving()
            ],
            "workers_replaced": self.replaced,
        }
        if self._ledger is not None:
            standing = self._ledger.standing
            parts["ledger"] = standing._replace(lost=standing.lost + self.lines_lost())._asdict()
        return parts

    def lines_lost(self) -> int:
        """Ledger lines that did not fit in workers."""
        figures = [member.figures for member in self.members.values()]
        return self._lost_before + sum(
            figures_of.lost for figures_of in figures if figures_of is not None
        )

    def _reserve(self, message: messages.Reserve) -> Message:
        assert self._counters is not None
        short = self._counters.reserve_now(message.id, message.wanted, at_ms=message.at_ms)
        return messages.Reserved(short)

    def _end(self, message: messages.End) -> Message:
        assert self._counters is not None
        counted, at_ms = message.counted, message.at_ms
        ended = self._counters.end_now(
            message.id, counted, reserved_ms=message.reserved_ms, at_ms=at_ms
        )
        if ended.first and any(count.meter.is_budget for count in counted):
            self._note(counted, ended.used, at_ms)
        return messages.Ended(ended.first, ended.used)

    def _add_spent(self, message: messages.SpentHere) -> None:
        assert self._counters is not None
        self._counters.add(
            Spent(count.meter.id, count.meter.window.bucket(message.at_ms), count.actual)
            for count in message.counted
        )
        self._note(message.counted, (), message.at_ms)

    def _note(self, counted: tuple[Counted, ...], used: tuple[int, ...], at_ms: int) -> None:
        self._do(self._accounts.note(counted, used, at_ms))

    async def _give_back(self, number: int, owner: str) -> None:
        left = await self._accounts.give_back_of(owner)
        if left:
            logger.warning(
                "worker %d ended with %d requests under way; their shares of limits and budgets "
                "are released",
                number,
                left,
            )

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _first(self, message: messages.First) -> Message:
        assert self._counters is not None
        first = await self._counters.first(
            message.mark, until_ms=message.until_ms, at_ms=message.at_ms
        )
        return messages.IsFirst(first)

    async def _remember(self, message: messages.Remember) -> Message:
        assert self._counters is not None
        await self._accounts.stored_ids.remember(message.marks, at_ms=message.at_ms)
        return messages.Done()

    async def _remembers(self, message: messages.Remembers) -> Message:
        assert self._counters is not None
        owner, ids, at_ms = message.owner, message.ids, message.at_ms
        try:
            async with InTime(_STORE_S):
                known = await self._accounts.stored_ids.remembers(owner, ids, at_ms=at_ms)
        except TimeoutError:
            here = await self._counters.remembers(owner, ids, at_ms=at_ms)
            known = here._replace(is_sure=False)
        return messages.AreRemembered(known)

    async def _read(self, message: messages.Read) -> Message:
        assert self._counters is not None
        return messages.Readings(await self._counters.read(message.meters, at_ms=message.at_ms))

    def _breaker(self, member: Member, message: messages.Breaker) -> None:
        others = (other for other in self.members.values() if other is not member)
        elsewhere = any(message.target in other.open_breakers for other in others)
        if message.state == "open":
            member.open_breakers.add(message.target)
        else:
            member.open_breakers.discard(message.target)
        if not elsewhere:
            self._on_breaker(message.target, message.state, message.why)

    async def _metrics(self) -> Message:
        from headrace.gateway.telemetry.exposition import CONTENT_TYPE, Exposition
        from headrace.gateway.workers.processes import Processes

        latest = await self.figures()
        # From here on nothing waits, so that no worker counts both as serving and as ended.
        whole = Sum(self._like)
        for series in (self._retired.figures(), *((f.counters, f.histograms) for _, f in latest)):
            whole.add(*series)
        standing = self._standing([figures for _, figures in latest])
        in_flight = sum(figures.in_flight for _, figures in latest)
        pids = [self._own_pid, *(member.pid for member, _ in latest)]
        made = Exposition(whole.series, lambda: standing, lambda: in_flight, Processes(pids))
        return messages.Metrics(CONTENT_TYPE, made.text())

    async def _health(self) -> Message:
        latest = await self.figures()
        return messages.Health(self._standing([figures for _, figures in latest]), self.parts())

    def _standing(self, latest: list[messages.Figures]) -> Standing:
        if not latest:
            return _NO_STANDING
        own = self._accounts.describe() if self._counters is not None else None
        return merged([figures.standing for figures in latest], own)


async def _refresh(member: Member) -> None:
    """Refresh a worker's figures; if it does not answer, its last ones count."""
    if member.link is None:
        return
    try:
        answer = await member.link.ask(messages.AskFigures())
    except LinkLostError:
        return
    if isinstance(answer, messages.Figures):
        member.figures = answer
