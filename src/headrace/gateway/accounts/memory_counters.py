"""Counters of one process. Exact: nothing here waits, so nothing comes between test and taking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.gateway.accounts.counters import (
    Counted,
    CountersState,
    Ended,
    Late,
    Reading,
    Shortage,
    Spent,
    SpentSource,
    Wanted,
)
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.terms import WhenDown


class _Count:
    """What one meter counts: used by bucket, and held."""

    __slots__ = ("buckets", "held", "newest", "used")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        """In the order of their numbers."""
        self.used = 0
        self.held = 0
        self.newest = -(2**62)

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
    """Counters that hold for this process alone."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}
        self._open: dict[str, tuple[tuple[str, int], ...]] = {}
        """What each reservation holds, by meter."""
        self._marks: dict[str, int] = {}

    async def reserve(
        self, id: str, wanted: Sequence[Wanted], *, at_ms: int, when_down: WhenDown
    ) -> tuple[Shortage, ...]:
        """See Counters."""
        return self.reserve_now(id, wanted, at_ms=at_ms)

    def reserve_now(self, id: str, wanted: Sequence[Wanted], *, at_ms: int) -> tuple[Shortage, ...]:
        """The same, without a chance that anything else runs."""
        assert id not in self._open, "an id is used once"
        counts = []
        short = []
        for meter, amount, limit in wanted:
            count = self._count(meter.id)
            window = meter.window
            bucket = window.bucket(at_ms)
            if bucket > count.newest:
                count.advance(bucket, window.span)
            counts.append(count)
            if count.used + count.held + amount > limit:
                free_at_ms = _free_at_ms(count, meter, amount, limit)
                short.append(Shortage(meter, limit, count.used, count.held, amount, free_at_ms))
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
        held = self._open.pop(id, None)
        if held is None:
            return Ended(first=False, counted=True)
        for meter_id, amount in held:
            self._counts[meter_id].held -= amount
        used = []
        for meter, was_held, actual in counted:
            count = self._count(meter.id)
            window = meter.window
            now = window.bucket(at_ms)
            if now > count.newest:
                count.advance(now, window.span)
            if meter.kind == "held":
                if meter.is_budget:
                    # A clock that was set back to before a window must not lose what was spent.
                    counts = now == count.newest or now >= count.newest - window.span
                    count.add(now if counts else count.newest, actual)
            elif actual < was_held:
                count.take_back(window.bucket(reserved_ms), was_held - actual)
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

    async def read(self, meters: Sequence[Meter], *, at_ms: int) -> tuple[Reading, ...]:
        """See Counters."""
        readings = []
        for meter in meters:
            count = self._counts.get(meter.id)
            if count is None:
                readings.append(Reading(meter, 0, 0))
                continue
            count.advance(meter.window.bucket(at_ms), meter.window.span)
            readings.append(Reading(meter, count.used, count.held))
        return tuple(readings)

    async def load(self, spent: Iterable[Spent]) -> None:
        """See Counters. Adds to what is counted."""
        self.add(spent)

    def add(self, spent: Iterable[Spent]) -> None:
        """Count what was spent without a reservation."""
        for meter_id, bucket, amount in sorted(spent):
            self._count(meter_id).add(bucket, amount)

    def restore_from(self, source: SpentSource) -> None:
        """See Counters. These forget nothing while the process runs."""

    async def tick(self, *, at_ms: int) -> tuple[Late, ...]:
        """See Counters. Nothing is ever late here."""
        return ()

    def describe(self) -> CountersState:
        """See Counters."""
        return CountersState(reach="per process")

    async def close(self) -> None:
        """See Counters."""

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
