"""New lines of the ledger, sent to all current listeners.

Listeners cannot delay requests: each has a bounded queue, and lines that do not fit are counted and
reported to it as lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.gateway.serving.entry import Entry

Wants = Callable[[Entry], bool]

# What a page shows at once; a file that keeps them all is the ledger.
_KEPT = 500


class Listener:
    """A reader of the feed. lost: lines it was too slow for since the last `take_lost`."""

    def __init__(self, wants: Wants, most_waiting: int) -> None:
        self._wants = wants
        self._most_waiting = most_waiting
        self._waiting: deque[Entry] = deque()
        self._some = asyncio.Event()
        self._lost = 0

    def offer(self, entry: Entry) -> None:
        """Never waits. Where there is no room the oldest goes."""
        if not self._wants(entry):
            return
        if len(self._waiting) >= self._most_waiting:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(entry)
        self._some.set()

    async def next(self) -> Entry:
        """The oldest that waits; waits for one."""
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        return self._waiting.popleft()

    def take_lost(self) -> int:
        """The number of lost lines since the last call."""
        lost, self._lost = self._lost, 0
        return lost


class Feed:
    """Ledger lines of one event loop as they arrive. newest: the last lines, the newest last, for
    later readers."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._listeners: set[Listener] = set()
        self.newest: deque[Entry] = deque(maxlen=kept)

    def take(self, entry: Entry) -> None:
        """A request is over."""
        self.newest.append(entry)
        for listener in self._listeners:
            listener.offer(entry)

    @property
    def listeners(self) -> int:
        """The number of listeners."""
        return len(self._listeners)

    @contextmanager
    def listening(self, wants: Wants, most_waiting: int) -> Iterator[Listener]:
        """Hears the lines that it wants, from now until the end of the `with`."""
        listener = Listener(wants, most_waiting)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
