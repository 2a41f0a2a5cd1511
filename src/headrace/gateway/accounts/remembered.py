"""Marks that are remembered for a time, in one process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from headrace.gateway.accounts.counters import Mark

MOST_MARKS = 200_000
"""At some 350 bytes each: 70 MB."""


class Remembered:
    """A bounded set of ids by owner.

    When it is full, a new id replaces the oldest one of the owner with the most, so that no owner
    can crowd out the others.
    """

    def __init__(self, most: int = MOST_MARKS) -> None:
        self._most = most
        self._count = 0
        self._of_owner: dict[str, OrderedDict[str, Mark]] = {}
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        """Owners by how many of theirs there are, so that the owner of most is found at once."""
        self._highest = 0

    def __len__(self) -> int:
        return self._count

    def add(self, marks: Iterable[Mark]) -> None:
        """They are known until their ends."""
        for mark in marks:
            own = self._of_owner.setdefault(mark.owner, OrderedDict())
            is_new = mark.id not in own
            own[mark.id] = mark
            own.move_to_end(mark.id)
            if is_new:
                self._counted(mark.owner, len(own) - 1)
                if self._count > self._most:
                    self._forget_one()

    def known(self, owner: str, ids: Iterable[str], at_ms: int) -> frozenset[str]:
        """The subset of the ids that are known."""
        own = self._of_owner.get(owner)
        if own is None:
            return frozenset()
        return frozenset(
            id for id in ids if (mark := own.get(id)) is not None and mark.until_ms > at_ms
        )

    def oldest(self, most: int) -> list[Mark]:
        """At most that many marks, those of each owner in the order in which they came."""
        return list(islice(chain.from_iterable(o.values() for o in self._of_owner.values()), most))

    def remove(self, marks: Sequence[Mark]) -> None:
        """Forget them; what came again meanwhile stays."""
        for mark in marks:
            own = self._of_owner.get(mark.owner)
            if own is not None and own.get(mark.id) is mark:
                del own[mark.id]
                self._counted(mark.owner, len(own) + 1)

    def _forget_one(self) -> None:
        owner = next(iter(self._by_count[self._highest]))
        own = self._of_owner[owner]
        own.popitem(last=False)
        self._counted(owner, len(own) + 1)

    def _counted(self, owner: str, before: int) -> None:
        """An owner has one more or one less than before."""
        now = len(self._of_owner[owner])
        self._count += now - before
        if before:
            alike = self._by_count[before]
            del alike[owner]
            if not alike:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, OrderedDict())[owner] = None
        else:
            del self._of_owner[owner]
        if now > self._highest or self._highest not in self._by_count:
            self._highest = now
