"""The interface of counters for use and reservations: in this process, or in Redis for all
processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.terms import WhenDown

MOST_OF_OWNER = 100_000
"""Marks of one owner that Redis and the store keep: at some 150 bytes each, 15 MB."""


class Wanted(NamedTuple):
    """The most that a request may take of one meter, and the limit now in force."""

    meter: Meter
    amount: int
    limit: int


class Counted(NamedTuple):
    """The use of one meter by a request, and what was held for it."""

    meter: Meter
    held: int
    actual: int


class Shortage(NamedTuple):
    """A meter without enough room."""

    meter: Meter
    limit: int
    used: int
    held: int
    wanted: int
    free_at_ms: int | None
    """When there will be room if no other request comes; None if that depends on running requests,
    or never happens."""


class Reading(NamedTuple):
    """The current state of a meter."""

    meter: Meter
    used: int
    held: int


class Spent(NamedTuple):
    """The use of a meter in one bucket of its window."""

    meter_id: str
    bucket: int
    amount: int


class Ended(NamedTuple):
    """The result of ending a reservation."""

    first: bool
    """False if it had ended before, and nothing changed."""
    counted: bool
    """False if it waits for a store that is down."""
    used: tuple[int, ...] = ()
    """The use of each meter afterwards."""


class Late(NamedTuple):
    """A delayed end that has now been counted."""

    counted: tuple[Counted, ...]
    used: tuple[int, ...]
    at_ms: int
    """When it was counted."""


class CountersState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the counters, for /health."""

    reach: Literal["per process", "machine", "cluster"]
    """Which processes share the limits."""
    reachable: bool = True
    unwritten: int = 0
    """Number of ends that wait to be written."""
    problem: str = ""


class Mark(NamedTuple):
    """An id to be remembered until a time."""

    owner: str
    """The owner of the id; of each owner the newest are kept."""
    id: str
    until_ms: int


class Known(NamedTuple):
    """The marks that are known."""

    ids: frozenset[str]
    is_sure: bool
    """False if a store that may know more is down."""


SpentSource = Callable[[Collection[str]], Awaitable[Sequence[Spent]]]
"""Reads what was spent of meters, by their ids, as far as it is known without the counters."""


class Counters(Protocol):
    """Times are in milliseconds since 1970, of the clock that the caller was handed."""

    async def reserve(
        self, id: str, wanted: Sequence[Wanted], *, at_ms: int, when_down: WhenDown
    ) -> tuple[Shortage, ...]:
        """Take all, or nothing and say what was short. Raises StoresDownError as when_down says.

        id: of the reservation, never used again.
        """

    async def end(
        self, id: str, counted: Sequence[Counted], *, reserved_ms: int, at_ms: int
    ) -> Ended:
        """Give back what was held and count what was used, once for an id.

        Never raises for a store that is down; cancelled, it is still done.
        """

    async def first(self, mark: str, *, until_ms: int, at_ms: int) -> bool:
        """Whether this mark is new; it is forgotten after until_ms."""

    async def remember(self, marks: Sequence[Mark], *, at_ms: int) -> None:
        """Know them until their ends, or until there are too many. Never raises for a store that
        is down."""

    async def remembers(self, owner: str, ids: Sequence[str], *, at_ms: int) -> Known:
        """The known ones of these marks of an owner. Never raises for a store that is down."""

    async def read(self, meters: Sequence[Meter], *, at_ms: int) -> tuple[Reading, ...]:
        """The state of meters."""

    async def load(self, spent: Iterable[Spent]) -> None:
        """Go on with what was spent before, if the counters do not know it."""

    def restore_from(self, source: SpentSource) -> None:
        """Set the source of past spending, in case the counters lose it while the process runs."""

    async def give_back_of(self, owner: str, *, at_ms: int) -> int:
        """Give back what a process that has ended holds, now or, where the store is down, by a
        `tick`; how many reservations that was now. owner: what their ids begin with."""

    async def tick(self, *, at_ms: int) -> tuple[Late, ...]:
        """Reconnect, write what waits, renew leases. Call it about once a second."""

    def describe(self) -> CountersState:
        """The current state."""

    async def close(self) -> None:
        """Let go of connections, after a last tick."""
