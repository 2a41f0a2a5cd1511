"""A request's share of limits and budgets, until it is settled or released."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from headrace.gateway.accounts.caller import Actual, Demand
from headrace.gateway.accounts.counters import Wanted


class Held(NamedTuple):
    """A reservation: what was taken, and for which demand."""

    id: str
    wanted: tuple[Wanted, ...]
    reserved_ms: int
    """When it was taken."""
    demand: Demand


class Settled(msgspec.Struct, frozen=True):
    """The result of settling a reservation."""

    first: bool
    """False if it had been settled or released before; then nothing was changed."""
    counted: bool
    """False if it waits for counters that are down; it will be counted, once."""


EndReservation = Callable[[Held, Sequence[Actual]], Awaitable[Settled]]


class Reservation:
    """A reservation, which ends once, by `settle` or `release`, whichever comes first. One that is
    forgotten is given back when it is collected; one whose process dies, when its lease ends.
    """

    __slots__ = ("__weakref__", "_end", "_ended", "_held", "_lost")

    def __init__(self, held: Held, end: EndReservation, lost: deque[Held]) -> None:
        """lost: where it is put if nobody ends it."""
        self._held = held
        self._end = end
        self._lost = lost
        self._ended = False

    @property
    def id(self) -> str:
        """Random, never used again."""
        return self._held.id

    @property
    def is_open(self) -> bool:
        """Whether it has not been settled or released."""
        return not self._ended

    async def settle(self, *taken: Actual) -> Settled:
        """Count what it took, of each model that was paid, and give back the rest. More than was
        reserved counts in full."""
        return await self._end_once(taken)

    async def release(self) -> Settled:
        """Give all of it back: nothing was used."""
        return await self._end_once(())

    async def _end_once(self, taken: Sequence[Actual]) -> Settled:
        if self._ended:
            return Settled(first=False, counted=False)
        # Before anything waits: another task may end it too.
        self._ended = True
        return await self._end(self._held, taken)

    def __repr__(self) -> str:
        return f"Reservation({self._held.id}, {'ended' if self._ended else 'open'})"

    def __del__(self) -> None:
        # May run in the midst of anything, so it only notes it down.
        if not self._ended:
            self._lost.append(self._held)
