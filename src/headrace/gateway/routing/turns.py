"""A queue of requests that wait for a busy target, by priority.

A place that becomes free is granted to the first in the queue before later requests are looked at.
All of this is within one process.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.gateway.routing.decision import Candidate
from headrace.gateway.settings.queue import QueueSettings
from headrace.gateway.targets.health import Health
from headrace.gateway.targets.target import Target


class NoTurnError(HeadraceError):
    """The queue was full, or the wait was too long."""


class _Waiter(NamedTuple):
    """A waiting request. Ordered by priority, lower first, then by arrival number."""

    priority: int
    number: int
    candidates: Sequence[Candidate]
    turn: asyncio.Future[Candidate]


class Turns:
    """The queue for the targets of one gateway."""

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._waiting: list[_Waiter] = []
        self._promised: dict[Health, int] = {}
        self._count = 0

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._waiting)

    def is_full(self, target: Target) -> bool:
        """Whether requests have to wait for it."""
        most = target.max_in_flight
        return most is not None and self._taken(target.health) >= most

    async def wait(self, candidates: Sequence[Candidate], priority: int) -> Candidate:
        """Wait for the first target with room and return it: `take` it before waiting again.

        Raises NoTurnError.
        """
        self._make_room(priority)
        self._count += 1
        turn: asyncio.Future[Candidate] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(priority, self._count, candidates, turn)
        insort(self._waiting, waiter, key=lambda waiting: waiting[:2])
        for candidate in candidates:
            candidate.target.health.on_free = self.freed
            self.freed(candidate.target.health)
        try:
            async with asyncio.timeout(self._settings.wait_s):
                return await turn
        except TimeoutError:
            self._give_up(turn)
            raise NoTurnError(
                f"it was at its limit of concurrent requests for {self._settings.wait_s:g} s"
            ) from None
        except asyncio.CancelledError:
            self._give_up(turn)
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def take(self, candidate: Candidate) -> None:
        """Turn the granted place into a request, or into a free place before `freed`."""
        health = candidate.target.health
        left = self._promised.pop(health) - 1
        if left:
            self._promised[health] = left

    def freed(self, health: Health) -> None:
        """A request has left a target: its place goes to the first in the queue."""
        for waiter in list(self._waiting):
            for candidate in waiter.candidates:
                if candidate.target.health is health and not self.is_full(candidate.target):
                    self._waiting.remove(waiter)
                    self._promised[health] = self._promised.get(health, 0) + 1
                    waiter.turn.set_result(candidate)
                    break

    def _taken(self, health: Health) -> int:
        return health.in_flight + self._promised.get(health, 0)

    def _make_room(self, priority: int) -> None:
        if len(self._waiting) < self._settings.max_requests:
            return
        last = self._waiting[-1]
        if last.priority <= priority:
            raise NoTurnError(f"the queue is full with {len(self._waiting)} requests")
        self._waiting.pop()
        last.turn.set_exception(NoTurnError("a request of a higher priority took its place"))

    def _give_up(self, turn: asyncio.Future[Candidate]) -> None:
        """Pass on a place that was granted in the same moment."""
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            candidate = turn.result()
            self.take(candidate)
            self.freed(candidate.target.health)
