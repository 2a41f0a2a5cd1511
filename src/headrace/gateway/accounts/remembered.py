"""Marks that are remembered for a time, in one process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from headrace.gateway.accounts.counters import Mark

MOST_MARKS = 200_000
"""At some 350 bytes each: 70 MB."""


class Remembered:
    """The oldest is forgotten for a new one where there are `most`."""

    def __init__(self, most: int = MOST_MARKS) -> None:
        self._most = most
        self._marks: OrderedDict[str, Mark] = OrderedDict()

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, marks: Iterable[Mark]) -> None:
        """They are known until their ends."""
        for mark in marks:
            self._marks[mark.id] = mark
            self._marks.move_to_end(mark.id)
            if len(self._marks) > self._most:
                self._marks.popitem(last=False)

    def known(self, ids: Iterable[str], at_ms: int) -> frozenset[str]:
        """Those of the ids that are known."""
        return frozenset(
            id for id in ids if (mark := self._marks.get(id)) is not None and mark.until_ms > at_ms
        )

    def oldest(self, most: int) -> list[Mark]:
        """As many as that, in the order they came."""
        return list(islice(self._marks.values(), most))

    def remove(self, marks: Sequence[Mark]) -> None:
        """Forget them; what came again meanwhile stays."""
        for mark in marks:
            if self._marks.get(mark.id) is mark:
                del self._marks[mark.id]
