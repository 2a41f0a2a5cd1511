"""Requests that wait for a target which has as many as it may have, by priority.

A place that becomes free is promised to who waits first, before anybody who comes later is looked
at. Nothing of it is of more than this process.
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
    """There was no room to wait in, or it was waited too long."""


class _Waiter(NamedTuple):
    """Ordered by priority, lower first, and then by arrival; no two have one number."""

    priority: int
    number: int
    candidates: Sequence[Candidate]
    turn: asyncio.Future[Candidate]


class Turns:
    """Of one gateway's targets."""

    def __init__(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._waiting: list[_Waiter] = []
        self._promised: dict[Health, int] = {}
        self._count = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def is_full(self, target: Target) -> bool:
        """Whether a request has to wait for it."""
        most = target.max_in_flight
        return most is not None and self._taken(target.health) >= most

    async def wait(self, candidates: Sequence[Candidate], priority: int) -> Candidate:
        """The first that has a place, which is promised: `take` it before anything else waits.

        Raises NoTurnError.
        """
        self._make_room(priority)
        self._count += 1
        turn: asyncio.Future[Candidate] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(priority, self._count, candidates, turn)
        insort(self._waiting, waiter, key=lambda one: one[:2])
        for one in candidates:
            one.target.health.on_free = self.freed
            self.freed(one.target.health)
        try:
            async with asyncio.timeout(self._settings.wait_s):
                return await turn
        except TimeoutError:
            self._give_up(turn)
            raise NoTurnError(
                f"it had as many requests as it may have for {self._settings.wait_s:g} s"
            ) from None
        except asyncio.CancelledError:
            self._give_up(turn)
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def take(self, candidate: Candidate) -> None:
        """The promised place is taken now, or given back by `freed`."""
        health = candidate.target.health
        left = self._promised.pop(health) - 1
        if left:
            self._promised[health] = left

    def freed(self, health: Health) -> None:
        """A request has left a target: its place goes to who waits first."""
        for waiter in list(self._waiting):
            for one in waiter.candidates:
                if one.target.health is health and not self.is_full(one.target):
                    self._waiting.remove(waiter)
                    self._promised[health] = self._promised.get(health, 0) + 1
                    waiter.turn.set_result(one)
                    break

    def _taken(self, health: Health) -> int:
        return health.in_flight + self._promised.get(health, 0)

    def _make_room(self, priority: int) -> None:
        if len(self._waiting) < self._settings.max_requests:
            return
        last = self._waiting[-1]
        if last.priority <= priority:
            raise NoTurnError(f"{len(self._waiting)} requests wait for a turn already")
        self._waiting.pop()
        last.turn.set_exception(NoTurnError("a request of a higher priority took its place"))

    def _give_up(self, turn: asyncio.Future[Candidate]) -> None:
        """Who was promised a place in the same moment gives it back."""
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            candidate = turn.result()
            self.take(candidate)
            self.freed(candidate.target.health)
