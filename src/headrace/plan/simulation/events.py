"""What happens when, in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

Handler = Callable[[float], None]


class EventQueue:
    """Handlers with the times they are due; those of one time in the order they were put in."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Handler]] = []
        self._numbers = count()
        self.now_s = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, at_s: float, handler: Handler) -> None:
        """Call `handler` with the time, at `at_s` seconds; not before what has happened."""
        heapq.heappush(self._heap, (max(at_s, self.now_s), next(self._numbers), handler))

    def step(self) -> None:
        """Do what is due next; IndexError where nothing is."""
        self.now_s, _, handler = heapq.heappop(self._heap)
        handler(self.now_s)
