"""Counters of one process. Exact: nothing here waits, so nothing comes between test and taking."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

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
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.remembered import Remembered
from headrace.gateway.accounts.terms import WhenDown
from headrace.gateway.accounts.window import Window

MOST_ADDRESSES = 200_000
"""At some 600 bytes each, what a flood of strange addresses may take: 120 MB."""


class _Count:
    """The counts of one meter: used by bucket, and held."""

    __slots__ = ("_until_ms", "buckets", "held", "newest", "used")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        """In the order of their numbers."""
        self.used = 0
        self.held = 0
        self.newest = -(2**62)
        self._until_ms = -(2**62)

    def at(self, window: Window, at_ms: int) -> None:
        """It is this time now. Most requests find the bucket of the one before them."""
        if at_ms >= self._until_ms:
            bucket = window.bucket(at_ms)
            self.advance(bucket, window.span)
            self._until_ms = window.ends_ms(bucket)

    def advance(self, bucket: int, span: int) -> None:
        """Forget what counts no more at `bucket`.

        Time never runs backwards here, also where a clock is set back.
        """
        if bucket <= self.newest:
            return
        self.newest = bucket
        start = bucket - span
        while self.buckets:
            oldest = next(iter(self.buckets))
            if oldest >= start:
                break
            self.used -= self.buckets.pop(oldest)

    def add(self, bucket: int, amount: int) -> None:
        """Count what was used, in a bucket that still counts."""
        self.used += amount
        if bucket in self.buckets:
            self.buckets[bucket] += amount
            return
        in_order = not self.buckets or bucket > next(reversed(self.buckets))
        self.buckets[bucket] = amount
        if not in_order:
            self.buckets = dict(sorted(self.buckets.items()))

    def take_back(self, bucket: int, amount: int) -> None:
        """Count so much less, if the bucket still counts."""
        there = self.buckets.get(bucket, 0)
        less = min(there, amount)
        if less:
            self.buckets[bucket] = there - less
            self.used -= less


class MemoryCounters:
    """Counters for this process alone.

    most_addresses: the most meters of client addresses, of which strangers can have any number; the
    least recently used is dropped first.
    """

    def __init__(self, *, most_addresses: int = MOST_ADDRESSES) -> None:
        self._counts: dict[str, _Count] = {}
        self._addresses: OrderedDict[str, None] = OrderedDict()
        self._most_addresses = most_addresses
        self._open: dict[str, tuple[tuple[str, int], ...]] = {}
        """What each reservation holds, by meter."""
        self._marks: dict[str, int] = {}
        self._remembered = Remembered()

    async def reserve(
        self, id: str, wanted: Sequence[Wanted], *, at_ms: int, when_down: WhenDown
    ) -> tuple[Shortage, ...]:
        """See Counters."""
        return self.reserve_now(id, wanted, at_ms=at_ms)

    def reserve_now(self, id: str, wanted: Sequence[Wanted], *, at_ms: int) -> tuple[Shortage, ...]:
        """The same, without a chance that anything else runs."""
        assert id not in self._open, "a reservation's id may be used only once"
        counts = []
        short = []
        for meter, amount, limit in wanted:
            count = self._counts.get(meter.id) or self._count(meter.id)
            count.at(meter.window, at_ms)
            counts.append(count)
            if meter.level == "address":
                self._addresses[meter.id] = None
                self._addresses.move_to_end(meter.id)
            if count.used + count.held + amount > limit:
                free_at_ms = _free_at_ms(count, meter, amount, limit)
                short.append(Shortage(meter, limit, count.used, count.held, amount, free_at_ms))
        if len(self._addresses) > self._most_addresses:
            self._forget_addresses()
        if short:
            return tuple(short)
        held = []
        for count, (meter, amount, _) in zip(counts, wanted, strict=True):
            if meter.kind == "held":
                count.held += amount
                held.append((meter.id, amount))
            else:
                count.add(count.newest, amount)
        self._open[id] = tuple(held)
        return ()

    async def end(
        self, id: str, counted: Sequence[Counted], *, reserved_ms: int, at_ms: int
    ) -> Ended:
        """See Counters."""
        return self.end_now(id, counted, reserved_ms=reserved_ms, at_ms=at_ms)

    def end_now(
        self, id: str, counted: Sequence[Counted], *, reserved_ms: int, at_ms: int
    ) -> Ended:
        """The same, without a chance that anything else runs."""
        held = self._open.pop(id, None)
        if held is None:
            return Ended(first=False, counted=True)
        for meter_id, amount in held:
            self._counts[meter_id].held -= amount
        used = []
        for meter, was_held, actual in counted:
            count = self._counts.get(meter.id) or self._count(meter.id)
            count.at(meter.window, at_ms)
            if meter.kind == "held":
                if meter.limit_name == "budget":
                    # Also by a clock that was set back: what was spent must not be lost.
                    count.add(count.newest, actual)
            elif actual < was_held:
                count.take_back(meter.window.bucket(reserved_ms), was_held - actual)
            elif actual > was_held:
                count.add(count.newest, actual - was_held)
            used.append(count.used)
        return Ended(first=True, counted=True, used=tuple(used))

    async def first(self, mark: str, *, until_ms: int, at_ms: int) -> bool:
        """See Counters."""
        if self._marks.get(mark, -1) > at_ms:
            return False
        self._marks = {m: until for m, until in self._marks.items() if until > at_ms}
        self._marks[mark] = until_ms
        return True

    async def remember(self, marks: Sequence[Mark], *, at_ms: int) -> None:
        """See Counters."""
        self._remembered.add(marks)

    async def remembers(self, owner: str, ids: Sequence[str], *, at_ms: int) -> Known:
        """See Counters."""
        return Known(self._remembered.known(owner, ids, at_ms), is_sure=True)

    async def read(self, meters: Sequence[Meter], *, at_ms: int) -> tuple[Reading, ...]:
        """See Counters."""
        readings = []
        for meter in meters:
            count = self._counts.get(meter.id)
            if count is None:
                readings.append(Reading(meter, 0, 0))
                continue
            count.at(meter.window, at_ms)
            readings.append(Reading(meter, count.used, count.held))
        return tuple(readings)

    async def load(self, spent: Iterable[Spent]) -> None:
        """See Counters. Adds to what is counted."""
        self.add(spent)

    def add(self, spent: Iterable[Spent]) -> None:
        """Count what was spent without a reservation."""
        for meter_id, bucket, amount in sorted(spent):
            self._count(meter_id).add(bucket, amount)

    def catch_up(self, counted: Sequence[Counted], used: Sequence[int], at_ms: int) -> None:
        """Count for budgets what was ended elsewhere. used: the use of each meter there afterwards;
        () if unknown."""
        for place, (meter, _, actual) in enumerate(counted):
            if meter.is_budget:
                count = self._count(meter.id)
                count.at(meter.window, at_ms)
                more = used[place] - count.used if used else 0
                count.add(count.newest, max(actual, more))

    def restore_from(self, source: SpentSource) -> None:
        """See Counters. These counters lose nothing while the process runs."""

    async def give_back_of(self, owner: str, *, at_ms: int) -> int:
        """See Counters."""
        ids = [id for id in self._open if id.startswith(owner)]
        for id in ids:
            self.end_now(id, (), reserved_ms=at_ms, at_ms=at_ms)
        return len(ids)

    async def tick(self, *, at_ms: int) -> tuple[Late, ...]:
        """See Counters. Nothing is ever late here."""
        return ()

    def describe(self) -> CountersState:
        """See Counters."""
        return CountersState(reach="per process")

    async def close(self) -> None:
        """See Counters."""

    def _forget_addresses(self) -> None:
        """Drop the oldest addresses, except those with running requests, which are checked again
        later."""
        for _ in range(len(self._addresses) - self._most_addresses):
            meter_id, _ = self._addresses.popitem(last=False)
            if self._counts[meter_id].held:
                self._addresses[meter_id] = None
            else:
                del self._counts[meter_id]

    def _count(self, meter_id: str) -> _Count:
        count = self._counts.get(meter_id)
        if count is None:
            count = self._counts[meter_id] = _Count()
        return count


def _free_at_ms(count: _Count, meter: Meter, amount: int, limit: int) -> int | None:
    """When enough of what was used counts no more for `amount` to fit."""
    missing = count.used + count.held + amount - limit
    if missing > count.used:
        return None
    for bucket, used in count.buckets.items():
        missing -= used
        if missing <= 0:
            return meter.window.leaves_ms(bucket)
    return None
