"""Ends of reservations that are not written to Redis yet."""

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
        """The spending on each budget."""
        for meter, _, actual in self.counted:
            if meter.is_budget:
                yield Spent(meter.id, meter.window.bucket(self.at_ms), actual)

    def is_of(self, unread: Collection[str]) -> bool:
        """Whether nothing of it can be written before these meters are known, by their ids."""
        return not self.holds and all(one.meter.id in unread for one in self.counted)

    def split(self, unread: Collection[str]) -> tuple[WaitingEnd, WaitingEnd | None]:
        """The part that needs none of these meters, and a separate end for the part that does; None
        for an empty part."""
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
        """The part of a waiting end that needs none of these meters; the other part waits
        separately."""
        known, rest = end.split(unread)
        if rest is not None:
            self.put(known)
            self.put(rest)
        return known

    def that_need_none_of(self, unread: Collection[str]) -> list[WaitingEnd]:
        """Ends of which something can be written before these meters are known."""
        ends = self._ends.values()
        return [end for end in ends if not end.is_of(unread)] if unread else list(ends)

    def spent(self) -> Iterator[Spent]:
        """The spending on each budget by each end."""
        for end in self._ends.values():
            yield from end.spent()
