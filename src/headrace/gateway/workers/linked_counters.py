"""Counters that the parent holds for all workers of a machine.

Messages arrive in order and none is lost while the parent lives, so a question that was not
answered in time still takes effect later: a reservation is then undone by an End sent after it.
While the parent does not answer, the caller's policy applies: "closed" refuses, "open" counts in
this process and reports to the parent afterwards.
"""

from __future__ import annotations

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
from headrace.gateway.accounts.errors import StoresDownError
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.terms import WhenDown
from headrace.gateway.workers import messages
from headrace.gateway.workers.link import Link, LinkLostError

_RETRY_AFTER_S = 1.0


class LinkedCounters:
    """The Counters of one worker; the parent loads and saves what was spent."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._down = False
        self._problem = ""
        self._here = MemoryCounters()
        self._local: dict[str, MemoryCounters] = {}
        """Where the reservations were made that date from when the parent did not answer."""

    async def reserve(
        self, id: str, wanted: Sequence[Wanted], *, at_ms: int, when_down: WhenDown
    ) -> tuple[Shortage, ...]:
        """See Counters."""
        if not self._down:
            try:
                reply = await self._link.ask(messages.Reserve(id, tuple(wanted), at_ms))
            except LinkLostError as error:
                self._lose(error)
                self._undo(id, at_ms)
            except BaseException:
                self._undo(id, at_ms)
                raise
            else:
                assert isinstance(reply, messages.Reserved)
                return reply.short
        if when_down == "closed":
            raise StoresDownError(
                "the process that counts limits and budgets does not answer, in which case this "
                "key is refused (when_stores_are_down: closed); try again soon",
                retry_after_s=_RETRY_AFTER_S,
            )
        short = self._here.reserve_now(id, wanted, at_ms=at_ms)
        if not short:
            self._local[id] = self._here
        return short

    async def end(
        self, id: str, counted: Sequence[Counted], *, reserved_ms: int, at_ms: int
    ) -> Ended:
        """See Counters."""
        here = self._local.pop(id, None)
        if here is not None:
            done = await here.end(id, counted, reserved_ms=reserved_ms, at_ms=at_ms)
            budgets = tuple(count for count in counted if count.meter.is_budget)
            self._link.tell(messages.SpentHere(budgets, at_ms))
            return Ended(first=True, counted=False, used=done.used)
        message = messages.End(id, tuple(counted), reserved_ms, at_ms)
        if self._down:
            self._link.tell(message)
            return Ended(first=True, counted=False)
        try:
            # If this is cancelled, the message has been sent all the same.
            reply = await self._link.ask(message)
        except LinkLostError as error:
            self._lose(error)
            return Ended(first=True, counted=False)
        assert isinstance(reply, messages.Ended)
        return Ended(first=reply.first, counted=True, used=reply.used)

    async def first(self, mark: str, *, until_ms: int, at_ms: int) -> bool:
        """See Counters. While the parent does not answer, each worker decides for itself."""
        if not self._down:
            try:
                reply = await self._link.ask(messages.First(mark, until_ms, at_ms))
            except LinkLostError as error:
                self._lose(error)
            else:
                assert isinstance(reply, messages.IsFirst)
                return reply.first
        return await self._here.first(mark, until_ms=until_ms, at_ms=at_ms)

    async def remember(self, marks: Sequence[Mark], *, at_ms: int) -> None:
        """See Counters. While the parent does not answer, this worker also keeps the marks."""
        message = messages.Remember(tuple(marks), at_ms)
        if self._down:
            self._link.tell(message)
        else:
            try:
                await self._link.ask(message)
                return
            except LinkLostError as error:
                self._lose(error)
        await self._here.remember(marks, at_ms=at_ms)

    async def remembers(self, owner: str, ids: Sequence[str], *, at_ms: int) -> Known:
        """See Counters. While the parent does not answer, each worker decides for itself."""
        if not self._down:
            try:
                reply = await self._link.ask(messages.Remembers(owner, tuple(ids), at_ms))
            except LinkLostError as error:
                self._lose(error)
            else:
                assert isinstance(reply, messages.AreRemembered)
                return reply.known
        here = await self._here.remembers(owner, ids, at_ms=at_ms)
        return here._replace(is_sure=False)

    async def read(self, meters: Sequence[Meter], *, at_ms: int) -> tuple[Reading, ...]:
        """See Counters. While the parent does not answer, the readings are of this process."""
        if not self._down:
            try:
                reply = await self._link.ask(messages.Read(tuple(meters), at_ms))
            except LinkLostError as error:
                self._lose(error)
            else:
                assert isinstance(reply, messages.Readings)
                return reply.readings
        return await self._here.read(meters, at_ms=at_ms)

    async def load(self, spent: Iterable[Spent]) -> None:
        """See Counters. The parent has loaded it before it starts workers."""

    def restore_from(self, source: SpentSource) -> None:
        """See Counters. The parent forgets nothing while it runs."""

    async def give_back_of(self, owner: str, *, at_ms: int) -> int:
        """See Counters. The parent does it."""
        return 0

    async def tick(self, *, at_ms: int) -> tuple[Late, ...]:
        """See Counters."""
        if self._down and not self._link.lost:
            try:
                await self._link.ask(messages.Ping())
            except LinkLostError as error:
                self._problem = str(error)
            else:
                self._down, self._problem = False, ""
        return ()

    def describe(self) -> CountersState:
        """See Counters."""
        return CountersState(
            reach="machine", reachable=not (self._down or self._link.lost), problem=self._problem
        )

    async def close(self) -> None:
        """See Counters. The link belongs to others."""

    def _lose(self, error: LinkLostError) -> None:
        self._problem = str(error)
        if not self._down:
            self._down = True
            self._here = MemoryCounters()

    def _undo(self, id: str, at_ms: int) -> None:
        self._link.tell(messages.End(id, (), at_ms, at_ms))
