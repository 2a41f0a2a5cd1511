"""The accounts of one process. A request touches only memory, or Redis if that is configured."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence

import msgspec

from headrace.errors import HeadraceError
from headrace.gateway.accounts.alert import Alert, crossings, may_cross
from headrace.gateway.accounts.caller import Actual, Caller, Demand
from headrace.gateway.accounts.counters import (
    Counted,
    Counters,
    CountersState,
    Reading,
    Shortage,
    Spent,
    Wanted,
)
from headrace.gateway.accounts.errors import (
    LimitExceededError,
    ModelNotAllowedError,
    UnknownPriceError,
)
from headrace.gateway.accounts.key import RandomBytes
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.records import NO_RECORDS, Records
from headrace.gateway.accounts.reservation import Held, Reservation, Settled
from headrace.gateway.accounts.roster import Roster
from headrace.gateway.accounts.store import AccountStore, SpentMore
from headrace.gateway.accounts.stored_ids import StoredIds
from headrace.gateway.accounts.terms import Level

_NS_PER_MS = 1_000_000
_ID_BYTES = 16

_logger = logging.getLogger(__name__)


class AccountsState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the accounts, for /health."""

    counters: CountersState
    keys: int
    has_store: bool
    unsaved: int
    """Sums of spending that the store does not have yet."""
    problem: str | None = None
    """The last problem of the store or of a change of records; None without one."""


class Accounts:
    """Keys, limits and budgets of one process; made once, started, ticked, closed.

    now_ns: wall clock, nanoseconds since 1970. random_bytes: an unpredictable source. on_alert:
    called with each alert; must not wait. A change of records takes effect at the next `tick`.
    """

    def __init__(
        self,
        counters: Counters,
        *,
        now_ns: Callable[[], int],
        random_bytes: RandomBytes,
        configured: Records = NO_RECORDS,
        store: AccountStore | None = None,
        on_alert: Callable[[Alert], None] | None = None,
        saves: bool = True,
    ) -> None:
        """saves: whether what was spent is written to the store from here, or by somebody else."""
        self._counters = counters
        self._now_ns = now_ns
        # No other process has the beginning, and the count goes on.
        self.owner = f"{random_bytes(_ID_BYTES).hex()}-"
        """What the ids of its reservations begin with."""
        self._reserved = 0
        self._configured = configured
        self._stored = NO_RECORDS
        self._store = store
        self._on_alert = on_alert
        self._saves = saves
        self.stored_ids = StoredIds(counters, self._now_ms, store if saves else None)
        """The owners of objects stored at providers."""
        self._roster = Roster(configured)
        if store is not None:
            counters.restore_from(self._spent_so_far)
        self._lost: deque[Held] = deque()
        self._unsaved: dict[tuple[str, int], SpentMore] = {}
        self._saving: asyncio.Future[None] | None = None
        self._save_problem: str | None = None
        self._read_problem: str | None = None

    async def start(self) -> None:
        """Read the store and go on with what was spent. Raises StoreError, ConfigError."""
        if self._store is None:
            # Whether counters are reached is known from the start.
            await self._counters.load(())
            return
        self._stored = await self._store.read()
        self._roster = Roster(self._configured, self._stored)
        await self._counters.load(await self._spent_so_far())

    def check(self, configured: Records) -> None:
        """Raises ConfigError where `reconfigure` would."""
        Roster(configured, self._stored)

    def reconfigure(self, configured: Records) -> None:
        """Take other records of the configuration, at once; ConfigError leaves the old ones."""
        self._roster = Roster(configured, self._stored)
        self._configured = configured
        self._read_problem = None

    @property
    def store(self) -> AccountStore | None:
        """The store in which keys are made; a change takes effect at the next `tick`."""
        return self._store

    @property
    def roster(self) -> Roster:
        """The current roster."""
        return self._roster

    def caller(self, presented_key: str) -> Caller:
        """The caller of a key. Raises UnknownKeyError, BlockedKeyError or ExpiredKeyError."""
        return self._roster.caller(presented_key, self._now_ms())

    async def reserve(self, caller: Caller, demand: Demand) -> Reservation:
        """Reserve what a request may need of every limit and budget, or nothing.

        Raises ModelNotAllowedError, UnknownPriceError, LimitExceededError, StoresDownError. The
        caller of this method has to settle or release the reservation, also when cancelled.
        """
        if self._lost:
            await self._give_back_lost()
        if not caller.may_use(demand.model, demand.own_name):
            raise ModelNotAllowedError(caller.key_id, demand.model)
        at_ms = self._now_ms()
        wanted = _wanted(caller, demand, at_ms)
        self._reserved += 1
        held = Held(f"{self.owner}{self._reserved:x}", wanted, at_ms, demand)
        if wanted:
            short = await self._counters.reserve(
                held.id, wanted, at_ms=at_ms, when_down=caller.when_stores_are_down
            )
            if short:
                raise LimitExceededError(max(short, key=_wait), at_ms=at_ms)
        return Reservation(held, self._end, self._lost)

    async def readings(self, level: Level, name: str) -> tuple[Reading, ...]:
        """The state of the limits and budgets of one organisation, team, user or key."""
        meters = [
            meter
            for meter in self._roster.meters().values()
            if meter.level == level and meter.name == name
        ]
        return await self._counters.read(meters, at_ms=self._now_ms())

    async def readings_of(self, caller: Caller) -> tuple[int, tuple[Reading, ...]]:
        """The time in milliseconds since 1970, and the state of everything that counts a caller
        then."""
        at_ms = self._now_ms()
        return at_ms, await self._counters.read(caller.meters, at_ms=at_ms)

    async def all_readings(self) -> tuple[Reading, ...]:
        """The state of every limit and budget of every key and of the groups above one."""
        meters = tuple(self._roster.meters().values())
        return await self._counters.read(meters, at_ms=self._now_ms())

    async def tick(self) -> None:
        """Reload changes and let the counters tick. Call it about once a second; it never raises
        for a store."""
        at_ms = self._now_ms()
        await self._give_back_lost()
        for late in await self._counters.tick(at_ms=at_ms):
            await self.note(late.counted, late.used, late.at_ms, is_late=True)
        if self._store is not None:
            await self._save(self._store)
            await self.stored_ids.save()
            await self._refresh(self._store)

    async def close(self) -> None:
        """Save what is left, and let go of counters and store."""
        await self.tick()
        await self._counters.close()
        if self._store is not None:
            await self._store.close()

    def describe(self) -> AccountsState:
        """The current state."""
        return AccountsState(
            counters=self._counters.describe(),
            keys=len(self._roster),
            has_store=self._store is not None,
            unsaved=len(self._unsaved),
            problem=self._save_problem or self._read_problem or self.stored_ids.problem,
        )

    def _now_ms(self) -> int:
        return self._now_ns() // _NS_PER_MS

    async def _end(self, held: Held, taken: Sequence[Actual]) -> Settled:
        if not held.wanted:
            return Settled(first=True, counted=True)
        at_ms = self._now_ms()
        counted = _counted(held, taken)
        ended = await self._counters.end(
            held.id, counted, reserved_ms=held.reserved_ms, at_ms=at_ms
        )
        if ended.first and ended.counted:
            await self.note(counted, ended.used, at_ms)
        return Settled(first=ended.first, counted=ended.counted)

    async def note(
        self,
        counted: tuple[Counted, ...],
        used: tuple[int, ...],
        at_ms: int,
        *,
        is_late: bool = False,
    ) -> None:
        """Record counts of the counters, made here or by another process, and send alerts for them.

        used: the use of each meter afterwards; () if unknown. is_late: see `crossings`.
        """
        self._keep_spent(counted, at_ms)
        await self._alert(counted, used, at_ms, is_late=is_late)

    async def give_back_of(self, owner: str) -> int:
        """Release the reservations of a process that has ended and counted in the same counters;
        returns their number. What they would have cost is unknown and not counted."""
        return await self._counters.give_back_of(owner, at_ms=self._now_ms())

    async def _give_back_lost(self) -> None:
        while self._lost:
            await self._end(self._lost.popleft(), ())

    async def _spent_so_far(self, of: Collection[str] | None = None) -> list[Spent]:
        """Spending that is saved, and that which is not yet: the store reads after it has written.
        of: ids of meters; None for all."""
        if self._store is None:
            return []
        more = self._unsaved.values()
        unsaved = [Spent(*one[:3]) for one in more if of is None or one.meter_id in of]
        return await self._store.spent(at_ms=self._now_ms(), of=of) + unsaved

    def _keep_spent(self, counted: tuple[Counted, ...], at_ms: int) -> None:
        if self._store is None or not self._saves:
            return
        for meter, _, actual in counted:
            if meter.is_budget and actual:
                bucket = meter.window.bucket(at_ms)
                leaves_ms = meter.window.leaves_ms(bucket)
                self._add_unsaved(SpentMore(meter.id, bucket, actual, leaves_ms))

    def _add_unsaved(self, more: SpentMore) -> None:
        place = more.meter_id, more.bucket
        before = self._unsaved.get(place)
        if before is not None:
            more = more._replace(amount=before.amount + more.amount)
        self._unsaved[place] = more

    async def _alert(
        self, counted: tuple[Counted, ...], used: tuple[int, ...], at_ms: int, *, is_late: bool
    ) -> None:
        if self._on_alert is None:
            return
        for one, now_used in zip(counted, used, strict=False):
            if not one.meter.thresholds or not may_cross(one, now_used):
                continue
            for crossing in crossings(one, now_used, at_ms, is_late=is_late):
                if await self._counters.first(
                    crossing.mark, until_ms=crossing.until_ms, at_ms=at_ms
                ):
                    try:
                        self._on_alert(crossing.alert)
                    except Exception as error:
                        # A request must not fail because nobody could be told; what the error
                        # says may hold a webhook's secret.
                        _logger.error(
                            "the receiver of budget alerts failed: %s", type(error).__name__
                        )

    async def _save(self, store: AccountStore) -> None:
        """Write what was spent. A write that was begun goes on if its tick is cancelled."""
        if self._saving is None and self._unsaved:
            more, self._unsaved = tuple(self._unsaved.values()), {}
            self._saving = asyncio.ensure_future(self._write(store, more))
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _write(self, store: AccountStore, more: tuple[SpentMore, ...]) -> None:
        try:
            await store.add_spent(more)
            self._save_problem = None
        except HeadraceError as error:
            for one in more:
                self._add_unsaved(one)
            self._save_problem = str(error)
        finally:
            self._saving = None

    async def _refresh(self, store: AccountStore) -> None:
        try:
            if await store.changed():
                self._stored = await store.read()
                self._roster = Roster(self._configured, self._stored)
                self._read_problem = None
        except HeadraceError as error:
            # What holds now goes on to hold.
            self._read_problem = str(error)


def _wanted(caller: Caller, demand: Demand, at_ms: int) -> tuple[Wanted, ...]:
    wanted = []
    model = demand.model
    most = {
        "running": min(1, demand.requests),
        "requests": demand.requests,
        "tokens": demand.input_tokens + demand.most_output_tokens,
        "nusd": demand.most_cost_nusd,
    }
    for meter in caller.meters:
        if meter.model == "*" or meter.counts(model) or _counts_other_name(meter, demand):
            limit = meter.amount if meter.raised_to is None else meter.limit(at_ms)
            amount = most[meter.unit]
            if amount is None:
                amount = _of_unknown_price(meter, demand)
            wanted.append(Wanted(meter, amount, limit))
    return tuple(wanted)


def _of_unknown_price(meter: Meter, demand: Demand) -> int:
    if meter.unknown_price == "refuse":
        raise UnknownPriceError(meter.level, meter.name, demand.model)
    # The least there is: a budget that is spent takes no more of these either.
    return 1


def _counts_other_name(meter: Meter, demand: Demand) -> bool:
    """Whether a meter counts another model that may answer, or the model behind the requested "
    "name."""
    if demand.own_name and meter.counts(demand.own_name):
        return True
    return any(meter.counts(name) for names in (demand.names or {}).values() for name in names)


def _counted(held: Held, taken: Sequence[Actual]) -> tuple[Counted, ...]:
    demand, of_all = held.demand, _used(taken)
    counted = []
    for meter, amount, _ in held.wanted:
        mine, used = taken, of_all
        if meter.model != "*" and demand.names is not None:
            mine = [one for one in taken if _is_counted(meter, demand, one)]
            used = _used(mine)
        actual = used[meter.unit]
        if actual is None:
            # Of a price that nobody knew, what was held of a budget was no cost.
            least = 0 if demand.most_cost_nusd is None else amount
            actual = max(least, sum(one.cost_nusd or one.standard_nusd for one in mine))
        counted.append(Counted(meter, amount, actual))
    return tuple(counted)


def _is_counted(meter: Meter, demand: Demand, actual: Actual) -> bool:
    """Whether a meter for some models, of which something was held, counts the model that "
    "answered."""
    if demand.names is None or not actual.model:
        return True
    asked = (demand.model, demand.own_name)
    names = demand.names.get(actual.model, (actual.model,))
    return any(meter.counts(one) for one in (*asked, *names))


def _used(taken: Sequence[Actual]) -> dict[str, int | None]:
    """The total counted by ending, by the unit of a meter; None if unknown for one of them."""
    requests = tokens = 0
    nusd: int | None = 0
    for one in taken:
        requests = max(requests, one.requests)  # all are parts of one
        tokens += one.input_tokens + one.output_tokens
        nusd = None if nusd is None or one.cost_nusd is None else nusd + one.cost_nusd
    return {"running": 0, "requests": requests, "tokens": tokens, "nusd": nusd}


def _wait(shortage: Shortage) -> float:
    """Seconds to wait, to find the longest wait; running requests end soon."""
    if shortage.free_at_ms is not None:
        return shortage.free_at_ms
    if shortage.used + shortage.wanted > shortage.limit:
        return float("inf")
    return 0
