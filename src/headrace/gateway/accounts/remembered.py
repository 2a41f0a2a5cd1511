"""Marks that are remembered for a time, in one process."""

from __future__ import annotations

from collections import OrderedDict

MOST_MARKS = 200_000
"""At some 200 bytes each: 40 MB."""


class Remembered:
    """The oldest is forgotten for a new one where there are `most`."""

    def __init__(self, most: int = MOST_MARKS) -> None:
        self._most = most
        self._until_ms: OrderedDict[str, int] = OrderedDict()

    def add(self, mark: str, until_ms: int) -> None:
        """It is known until then."""
        self._until_ms[mark] = until_ms
        self._until_ms.move_to_end(mark)
        if len(self._until_ms) > self._most:
            self._until_ms.popitem(last=False)

    def has(self, mark: str, at_ms: int) -> bool:
        """Whether it is known."""
        return self._until_ms.get(mark, at_ms) > at_ms
