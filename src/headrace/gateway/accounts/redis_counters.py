"""Counters in Redis or Valkey, which hold for every process that uses the same one.

A reservation is one script, settling it another. Every call is bounded in time, and the first that
fails stops further ones until `tick` has brought the connection back: a dead Redis costs those
under way their timeout, and none that follow. Meanwhile a caller's policy holds: "closed" refuses,
"open" counts in this process, on top of what Redis said last. Settlements that could not be written
wait in memory and carry their reservation's id, so writing one twice counts once. As many as
`most_unwritten` may wait; then "open" refuses too, so nothing is ever thrown away.

What Redis forgets of a budget, in a restart without persistence or by eviction, is seeded from the
durable store before that budget counts again; what other processes had not saved by then, a
second's worth, is missing in it. While the store cannot be read, and until what waits for it was
written, the policy holds for requests of such a budget alone; what their ends count of other limits
and budgets is written at once. The processes' clocks are taken to agree within a second (NTP).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from headrace.gateway.accounts.counters import (
    Counted,
    CountersState,
    Ended,
    Known,
    Late,
    Mark,
    Reading,
    Shortage,
    Spent,
    SpentSource,
    Wanted,
)
from headrace.gateway.accounts.errors import StoresDownError
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.outage import OnOutage, Outage
from headrace.gateway.accounts.redis_link import RedisLink, RedisLostError
from headrace.gateway.accounts.redis_marks import RedisMarks
from headrace.gateway.accounts.redis_owners import EndedOwners
from headrace.gateway.accounts.redis_script import END, RENEW, RESERVE, kind_of, shortages
from headrace.gateway.accounts.redis_seeding import Seeding, UnreadStoreError
from headrace.gateway.accounts.redis_waiting import WaitingEnd, WaitingEnds
from headrace.gateway.accounts.terms import WhenDown

DEFAULT_LEASE_MS = 120_000
DEFAULT_MOST_UNWRITTEN = 100_000

# So long a settlement is known by its id; one that waited longer was never written before.
_MARK_MS = 86_400_000
_RENEWALS_PER_LEASE = 3
# Ids and meters of one call; a script stops Redis while it runs.
_BATCH = 200
_WRITTEN_AT_ONCE = 32
_RETRY_AFTER_S = 1.0
_LOST = "the counters of limits and budgets (Redis) cannot be reached"
_UNREAD = "the spending of a budget of this key is not in Redis and cannot be read from the store"

_logger = logging.getLogger(__name__)


class RedisCounters:
    """Counters in Redis, shared by all gateways with the same prefix of keys; see the module."""

    def __init__(
        self,
        link: RedisLink,
        *,
        prefix: str = "headrace",
        lease_ms: int = DEFAULT_LEASE_MS,
        most_unwritten: int = DEFAULT_MOST_UNWRITTEN,
        clock_s: Callable[[], float] = time.monotonic,
        on_outage: OnOutage | None = None,
    ) -> None:
        self._link = link
        self._prefix = f"{{{prefix}}}:"
        self._seeding = Seeding(link, self._prefix, lease_ms)
        self._lease_ms = lease_ms
        self._most_unwritten = most_unwritten
        self._down = Outage(
            "Redis, which counts limits and budgets,",
            "keys are refused; those with when_stores_are_down: open are counted by each process",
            clock_s=clock_s,
            on_change=on_outage,
        )
        self._waiting = WaitingEnds()
        self._late: list[Late] = []
        self._leased: dict[str, None] = {}
        self._renewed_ms = 0
        self._ended_owners = EndedOwners(link, self._prefix)
        self._here: MemoryCounters | None = None
        """Local counts while Redis, or the store of what it lacks, is out of reach: from the first
        reservation until the last one made here has ended."""
        self._here_ids: set[str] = set()
        """Reservations made here."""
        self._unread: set[str] = set()
        """Budgets, by ids of their meters, that Redis lacked and the store could not read."""
        self._marks = RedisMarks(link, self._prefix)
        self._last_used: dict[str, Spent] = {}
        """The last known use of each budget in Redis."""
        self._ticking = asyncio.Lock()

    async def reserve(
        self, id: str, wanted: Sequence[Wanted], *, at_ms: int, when_down: WhenDown
    ) -> tuple[Shortage, ...]:
        """See Counters."""
        if self._down or (self._unread and any(w.meter.id in self._unread for w in wanted)):
            return self._reserve_here(id, wanted, at_ms, when_down)
        try:
            reply = await self._run_reserve(id, wanted, at_ms)
        except RedisLostError as error:
            self._lose(error)
            # It may have been taken all the same.
            self._undo(id, at_ms)
            return self._reserve_here(id, wanted, at_ms, when_down)
        except UnreadStoreError as error:
            short = self._reserve_here(id, wanted, at_ms, when_down)
            self._unread |= error.meter_ids
            return short
        except BaseException:
            self._undo(id, at_ms)
            raise
        if reply[0] == "short":
            return shortages(reply, wanted)
        self._leased[id] = None
        return ()

    async def end(
        self, id: str, counted: Sequence[Counted], *, reserved_ms: int, at_ms: int
    ) -> Ended:
        """See Counters."""
        self._leased.pop(id, None)
        if id in self._here_ids:
            return self._end_here(id, counted, reserved_ms, at_ms)
        whole = end = WaitingEnd(id, tuple(counted), reserved_ms, at_ms)
        used = None
        try:
            while used is None and not self._down:
                try:
                    used = await self._run_end(end, late=False, may_read=not self._unread)
                except UnreadStoreError as error:
                    self._unread |= error.meter_ids
                    end, unread = end.split(error.meter_ids)
                    if unread is not None:
                        self._keep(unread)
        except RedisLostError as error:
            self._lose(error)
        except BaseException:
            self._keep(end)
            raise
        if used is None:
            self._keep(end)
            return Ended(first=True, counted=False)
        if self._here is not None:
            self._here.catch_up(end.counted, used, at_ms)
        if end is whole:
            return Ended(first=True, counted=True, used=used)
        self._add_late(end, used)
        return Ended(first=True, counted=False)

    async def first(self, mark: str, *, until_ms: int, at_ms: int) -> bool:
        """See Counters. While Redis is down each process answers for itself."""
        if not self._down:
            try:
                lifetime_ms = max(1, until_ms - at_ms)
                return await self._link.set_first(f"{self._prefix}a:{mark}", lifetime_ms)
            except RedisLostError as error:
                self._lose(error)
        return await self._counters_here().first(mark, until_ms=until_ms, at_ms=at_ms)

    async def remember(self, marks: Sequence[Mark], *, at_ms: int) -> None:
        """See Counters. While Redis is down this process alone remembers; a `tick` writes it to
        Redis."""
        if not self._down:
            try:
                await self._marks.add(marks, at_ms)
                return
            except RedisLostError as error:
                self._lose(error)
        self._marks.waiting.add(marks)

    async def remembers(self, owner: str, ids: Sequence[str], *, at_ms: int) -> Known:
        """See Counters. While Redis is down only the marks of this process are known."""
        known = self._marks.waiting.known(owner, ids, at_ms)
        left = [id for id in ids if id not in known]
        if left and not self._down:
            try:
                known |= await self._marks.known(owner, left, at_ms)
            except RedisLostError as error:
                self._lose(error)
        return Known(known, is_sure=not self._down)

    async def read(self, meters: Sequence[Meter], *, at_ms: int) -> tuple[Reading, ...]:
        """See Counters. While Redis is down, what this process knows."""
        if self._down:
            return await self._counters_here().read(meters, at_ms=at_ms)
        readings: list[Reading] = []
        try:
            for start in range(0, len(meters), _BATCH):
                part = meters[start : start + _BATCH]
                readings += await self._seeding.read(part, at_ms=at_ms)
        except RedisLostError as error:
            self._lose(error)
            return await self._counters_here().read(meters, at_ms=at_ms)
        return tuple(readings)

    async def load(self, spent: Iterable[Spent]) -> None:
        """See Counters. Each budget is written to Redis from the source of `restore_from` when
        needed."""
        try:
            policy = await self._link.evicts()
        except RedisLostError as error:
            self._lose(error)
            self._counters_here().add(spent)
            return
        if policy is not None:
            _logger.warning(
                "Redis evicts the counters of limits and budgets when it is full "
                "(maxmemory-policy %s); set noeviction there and give a cache a server of its "
                "own",
                policy,
            )

    def restore_from(self, source: SpentSource) -> None:
        """See Counters."""
        self._seeding.source = source

    async def give_back_of(self, owner: str, *, at_ms: int) -> int:
        """See Counters."""
        self._ended_owners.add(owner)
        if not self._down:
            try:
                return await self._ended_owners.give_back()
            except RedisLostError as error:
                self._lose(error)
        return 0

    async def tick(self, *, at_ms: int) -> tuple[Late, ...]:
        """See Counters."""
        async with self._ticking:
            try:
                # Also while nothing is asked, so that a loss is known before a request meets it.
                await self._link.ping()
                await self._write_waiting()
                await self._marks.add_waiting(at_ms)
                self._down.end()
                if not (self._unread or self._here_ids):
                    self._here = None
                await self._renew(at_ms)
                await self._ended_owners.give_back()
            except RedisLostError as error:
                self._lose(error)
        late, self._late = tuple(self._late), []
        return late

    def describe(self) -> CountersState:
        """See Counters."""
        return CountersState(
            reach="cluster",
            reachable=not self._down,
            unwritten=len(self._waiting),
            problem=self._down.problem,
        )

    async def close(self) -> None:
        """See Counters."""
        await self._link.close()

    async def _write_waiting(self) -> None:
        """Write all ends that need no unread budget; the store is tried until it fails once."""
        unread: set[str] = set()
        while ends := self._waiting.that_need_none_of(unread):
            left = (end for end in ends if not end.is_of(unread))
            while some := list(islice(left, _WRITTEN_AT_ONCE)):
                for problem in await asyncio.gather(*(self._write(end, unread) for end in some)):
                    if problem is not None:
                        raise problem
        self._unread = unread

    async def _write(self, end: WaitingEnd, unread: set[str]) -> RedisLostError | None:
        """Write the part of an end that needs no unread budget; adds further unread ones to
        `unread`."""
        used = None
        while used is None:
            if end.is_of(unread):
                return None
            end = self._waiting.without(end, unread)
            try:
                used = await self._run_end(end, late=True, may_read=not unread)
            except UnreadStoreError as error:
                unread |= error.meter_ids
            except RedisLostError as error:
                return error
        # Only now is it written; a lost answer leaves it, and by its id it counts once.
        self._waiting.remove(end)
        if self._here is not None:  # it has these; what others used it has not
            counted = [one._replace(actual=0) for one in end.counted]
            self._here.catch_up(counted, used, end.at_ms)
        self._add_late(end, used)
        return None

    def _add_late(self, end: WaitingEnd, used: tuple[int, ...]) -> None:
        if end.counted:
            self._late.append(Late(end.counted, used, end.at_ms))

    def _lose(self, error: RedisLostError) -> None:
        self._down.begin(str(error))

    def _keep(self, end: WaitingEnd) -> None:
        """Write it later; until then it counts here."""
        self._waiting.put(end)
        if self._here is not None:
            self._here.add(end.spent())

    def _undo(self, id: str, at_ms: int) -> None:
        self._waiting.put(WaitingEnd(id, (), at_ms, at_ms))

    def _end_here(self, id: str, counted: Sequence[Counted], reserved_ms: int, at_ms: int) -> Ended:
        self._here_ids.remove(id)
        done = self._counters_here().end_now(id, counted, reserved_ms=reserved_ms, at_ms=at_ms)
        budgets = tuple(one for one in counted if one.meter.is_budget)
        if budgets:
            self._waiting.put(WaitingEnd(f"{id}-here", budgets, reserved_ms, at_ms, holds=False))
        return Ended(first=True, counted=False, used=done.used)

    def _reserve_here(
        self, id: str, wanted: Sequence[Wanted], at_ms: int, when_down: WhenDown
    ) -> tuple[Shortage, ...]:
        why = _LOST if self._down else _UNREAD
        if when_down == "closed":
            so = "this key is refused meanwhile (when_stores_are_down: closed)"
        elif len(self._waiting) + len(self._here_ids) >= self._most_unwritten:
            so = f"{self._most_unwritten} settlements are already waiting for them"
        else:
            short = self._counters_here().reserve_now(id, wanted, at_ms=at_ms)
            if not short:
                self._here_ids.add(id)
            return short
        raise StoresDownError(f"{why}, and {so}; try again soon", retry_after_s=_RETRY_AFTER_S)

    def _counters_here(self) -> MemoryCounters:
        if self._here is None:
            self._here = MemoryCounters()
            self._here.add((*self._last_used.values(), *self._waiting.spent()))
        return self._here

    async def _run_reserve(self, id: str, wanted: Sequence[Wanted], at_ms: int) -> Sequence[str]:
        meters = [want.meter for want in wanted]
        arguments: list[str | int] = [id, at_ms, at_ms + self._lease_ms, f"{self._prefix}r:"]
        for meter, amount, limit in wanted:
            window = meter.window
            arguments += (kind_of(meter), amount, limit, window.bucket(at_ms), window.span)
            arguments.append(self._seeding.lifetime_ms(meter))
        return await self._seeding.run(RESERVE, self._keys(id, meters), arguments, meters)

    async def _run_end(
        self, end: WaitingEnd, *, late: bool, may_read: bool = True
    ) -> tuple[int, ...]:
        meters = [one.meter for one in end.counted]
        arguments: list[str | int] = [end.id, _MARK_MS, int(late)]
        for meter, held, actual in end.counted:
            window = meter.window
            amount = actual - held if meter.kind == "rate" else actual * meter.is_budget
            arguments += (kind_of(meter), amount, window.bucket(end.at_ms), window.span)
            arguments += (window.bucket(end.reserved_ms), self._seeding.lifetime_ms(meter))
        reply = await self._seeding.run(
            END, self._keys(end.id, meters), arguments, meters, may_read=may_read
        )
        used = tuple(int(text) for text in reply[1:])
        for one, now_used in zip(end.counted, used, strict=False):
            if one.meter.is_budget:
                bucket = one.meter.window.bucket(end.at_ms)
                self._last_used[one.meter.id] = Spent(one.meter.id, bucket, now_used)
        return used

    async def _renew(self, at_ms: int) -> None:
        if at_ms - self._renewed_ms < self._lease_ms // _RENEWALS_PER_LEASE:
            return
        ids = list(self._leased)
        for start in range(0, len(ids), _BATCH):
            part = ids[start : start + _BATCH]
            await self._link.run(RENEW, [f"{self._prefix}leases"], [at_ms + self._lease_ms, *part])
        self._renewed_ms = at_ms

    def _keys(self, id: str, meters: Iterable[Meter]) -> list[str]:
        prefix = self._prefix
        own = [f"{prefix}leases", f"{prefix}s:{id}", f"{prefix}r:{id}"]
        return own + [self._seeding.key(meter) for meter in meters]
