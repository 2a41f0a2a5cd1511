"""How many requests are worked on at once; others wait in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Waiter(Protocol):
    """A request that can wait for a place."""

    def start(self, begun_ns: int) -> None:
        """It is its turn."""


class Capacity:
    """Places and the queue before them. None: as many as come.

    A turn that comes with somebody's leaving begins at `clock_ns`.
    """

    def __init__(
        self, places: int | None, max_queued: int | None, clock_ns: Callable[[], int]
    ) -> None:
        self._places = places
        self._max_queued = max_queued
        self._clock_ns = clock_ns
        self._running: set[Waiter] = set()
        self._waiting: dict[Waiter, None] = {}

    @property
    def running(self) -> int:
        """Requests with a place."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def enter(self, one: Waiter, now_ns: int) -> bool:
        """Give `one` a place, now or in its turn; False where the queue is full."""
        if self._places is None or len(self._running) < self._places:
            self._running.add(one)
            one.start(now_ns)
            return True
        if self._max_queued is not None and len(self._waiting) >= self._max_queued:
            return False
        self._waiting[one] = None
        return True

    def leave(self, one: Waiter) -> None:
        """`one` is done or gone; the next has its place."""
        if one in self._waiting:
            del self._waiting[one]
        elif one in self._running:
            self._running.remove(one)
            if self._waiting:
                first = next(iter(self._waiting))
                del self._waiting[first]
                self._running.add(first)
                first.start(self._clock_ns())
