"""Ends of reservations that Redis could not be told of yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from headrace.gateway.accounts.counters import Counted, Spent


class WaitingEnd(NamedTuple):
    """The end of a reservation that is being written, or waits to be."""

    id: str
    counted: tuple[Counted, ...]
    """Empty to undo what may have been taken."""
    reserved_ms: int
    at_ms: int
    holds: bool = True
    """Whether Redis may hold something for it."""

    def spent(self) -> Iterator[Spent]:
        """Of each budget."""
        for meter, _, actual in self.counted:
            if meter.is_budget:
                yield Spent(meter.id, meter.window.bucket(self.at_ms), actual)

    def is_of(self, unread: Collection[str]) -> bool:
        """Whether nothing of it can be written before these meters are known, by their ids."""
        return not self.holds and all(one.meter.id in unread for one in self.counted)

    def split(self, unread: Collection[str]) -> tuple[WaitingEnd, WaitingEnd | None]:
        """What needs none of these meters, and an end by itself of what does; None for nothing."""
        if not unread:
            return self, None
        rest = tuple(one for one in self.counted if one.meter.id in unread)
        if not rest:
            return self, None
        known = tuple(one for one in self.counted if one.meter.id not in unread)
        return (
            self._replace(counted=known),
            self._replace(id=f"{self.id}-unread", counted=rest, holds=False),
        )


class WaitingEnds:
    """A queue of ends, in the order in which they came."""

    def __init__(self) -> None:
        self._ends: dict[str, WaitingEnd] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def put(self, end: WaitingEnd) -> None:
        """It waits."""
        self._ends[end.id] = end

    def remove(self, end: WaitingEnd) -> None:
        """It is written."""
        del self._ends[end.id]

    def without(self, end: WaitingEnd, unread: Collection[str]) -> WaitingEnd:
        """What needs none of these meters of one that waits; what does waits by itself."""
        known, rest = end.split(unread)
        if rest is not None:
            self.put(known)
            self.put(rest)
        return known

    def that_need_none_of(self, unread: Collection[str]) -> list[WaitingEnd]:
        """Those of which something can be written before these meters are known."""
        ends = self._ends.values()
        return [end for end in ends if not end.is_of(unread)] if unread else list(ends)

    def spent(self) -> Iterator[Spent]:
        """Of each budget, by each of them."""
        for end in self._ends.values():
            yield from end.spent()
