"""Budgets that Redis does not have: loaded from the durable store before they count.

A budget's meter is marked as seeded in its own hash, so that the mark disappears with the meter: a
Redis that restarts without persistence, or evicts one key, is seeded again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace.gateway.accounts.counters import Reading, Spent, SpentSource
from headrace.gateway.accounts.errors import StoreError
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.redis_link import RedisLink, RedisLostError
from headrace.gateway.accounts.redis_script import READ, SEED

UNSEEDED = "unseeded"

# A meter nobody asks for is forgotten so long after its window.
_IDLE_MS = 86_400_000

_logger = logging.getLogger(__name__)


class UnreadStoreError(HeadraceError):
    """A store that cannot be read, while Redis works but lacks the spending of budgets.

    Nothing was counted. meter_ids: those budgets.
    """

    def __init__(self, problem: str, meters: Sequence[Meter]) -> None:
        super().__init__(problem)
        self.meter_ids = frozenset(meter.id for meter in meters)


class Seeding:
    """The transfer of past spending into a Redis that lacks it.

    prefix: of all keys in Redis. lease_ms: for how long a reservation may hold something.
    """

    def __init__(self, link: RedisLink, prefix: str, lease_ms: int) -> None:
        self._link = link
        self._prefix = prefix
        self._lease_ms = lease_ms
        self._lock = asyncio.Lock()
        self._failures = 0
        self._lost = False
        """Whether the last failure was of Redis."""
        self._unread = False
        """Whether the last attempt to read the store failed."""
        self.source: SpentSource | None = None
        """Past spending as known without Redis; None if only Redis has it."""

    async def run(
        self,
        script: str,
        keys: Sequence[str],
        arguments: Sequence[str | int],
        meters: Sequence[Meter],
        *,
        may_read: bool = True,
    ) -> Sequence[str]:
        """Run a script, after seeding those of its meters that it reports as unseeded. may_read:
        whether the store is read for them. Raises RedisLostError and UnreadStoreError."""
        failures = self._failures
        reply = await self._link.run(script, keys, arguments)
        if reply[0] != UNSEEDED:
            return reply
        unknown = [meters[int(place)] for place in reply[1:]]
        if not may_read:
            raise UnreadStoreError(
                "the store of past spending: not read again after a recent failure", unknown
            )
        async with self._lock:
            if self._failures != failures:
                problem = "Redis: another call that was seeding it failed"
                raise RedisLostError(problem) if self._lost else UnreadStoreError(problem, unknown)
            try:
                # Whoever had the lock may have seeded them.
                reply = await self._link.run(script, keys, arguments)
                if reply[0] == UNSEEDED:
                    await self._seed([meters[int(place)] for place in reply[1:]])
                    reply = await self._link.run(script, keys, arguments)
                if reply[0] == UNSEEDED:
                    raise RedisLostError("Redis loses what is written to it")
            except (RedisLostError, UnreadStoreError) as error:
                self._failures += 1
                self._lost = isinstance(error, RedisLostError)
                raise
        return reply

    async def read(self, meters: Sequence[Meter], *, at_ms: int) -> list[Reading]:
        """The state of meters, from Redis or, for budgets that it lacks, from the store, without
        seeding them. While the store cannot be read, what Redis has of them. Raises RedisLostError.
        """
        keys = [self.key(meter) for meter in meters]
        places = [n for m in meters for n in (m.window.bucket(at_ms), m.window.span)]
        numbers = [int(text) for text in await self._link.run(READ, keys, places)]
        readings, unknown = [], {}
        for place, meter in enumerate(meters):
            used, held, seeded = numbers[3 * place : 3 * place + 3]
            readings.append(Reading(meter, used, held))
            if meter.is_budget and not seeded:
                unknown[meter] = place
        if unknown and self.source is not None:
            counters = MemoryCounters()
            try:
                counters.add(await self._spent(list(unknown)))
            except UnreadStoreError:
                return readings
            for reading in await counters.read(list(unknown), at_ms=at_ms):
                readings[unknown[reading.meter]] = reading
        return readings

    def key(self, meter: Meter) -> str:
        """The key of a meter's hash in Redis."""
        return f"{self._prefix}m:{meter.id}"

    def lifetime_ms(self, meter: Meter) -> int:
        """How long a meter's hash is kept after its last use; 0 forever."""
        length_ms = meter.window.length_ms
        if length_ms is None and meter.is_budget:
            return 0
        # A month by the calendar may be longer than 30 days; a day more covers it.
        return (length_ms or 0) + _IDLE_MS + self._lease_ms

    async def _seed(self, meters: Sequence[Meter]) -> None:
        spent = await self._spent(meters)
        for meter in meters:
            keys = [self.key(meter), f"{self._prefix}leases"]
            arguments: list[str | int] = [f"{self._prefix}r:", self.lifetime_ms(meter)]
            for meter_id, bucket, amount in spent:
                if meter_id == meter.id:
                    arguments += (bucket, amount)
            await self._link.run(SEED, keys, arguments)

    async def _spent(self, meters: Sequence[Meter]) -> Sequence[Spent]:
        if self.source is None:
            return ()
        try:
            spent = await self.source([meter.id for meter in meters])
        except StoreError as error:
            if not self._unread:
                _logger.error(
                    "the spending of budgets that Redis does not have cannot be read (%s): keys "
                    "with such a budget are refused, those with when_stores_are_down: open are "
                    "counted by each process",
                    error,
                )
            self._unread = True
            raise UnreadStoreError(f"the store of past spending: {error}", meters) from error
        if self._unread:
            _logger.warning("the spending of budgets that Redis does not have can be read again")
        self._unread = False
        return spent
