"""Identical requests under way: the first asks, the others wait for its answer.

A flight ends with an answer that all its waiters are given, or without one: then the waiter that
came first takes it over and asks itself, and the others wait for that one.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.gateway.cache.kept import Kept

# Beyond them a request asks for itself: nobody waits in a queue without end.
_MOST_FLIGHTS = 10_000
_MOST_WAITERS = 1_000
# Who saw so many fail before it does not wait for another one.
_MOST_TRIES = 3


class Flight:
    """One request that is being answered. Whoever has it has to `land` it, whatever happens."""

    def __init__(self, flights: Flights, key: bytes, tries: int = 1) -> None:
        self._flights = flights
        self.key = key
        self.tries = tries
        self.waiters: deque[asyncio.Future[Kept | Flight | None]] = deque()
        self._has_landed = False

    def land(self, kept: Kept | None) -> None:
        """Give the answer to all who wait; without one the next of them asks. Doing it twice does
        nothing."""
        if not self._has_landed:
            self._has_landed = True
            self._flights.landed(self, kept)


class Flights:
    """By the key of the exact cache, so that who shares a flight would share an answer."""

    def __init__(self, most_wait_s: float) -> None:
        self._most_wait_s = most_wait_s
        self._by_key: dict[bytes, Flight] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    async def join(self, key: bytes) -> Kept | Flight | None:
        """The answer of the one that is under way; or a flight, if the caller is now who asks; or
        None where it asks and nobody waits for it."""
        flight = self._by_key.get(key)
        if flight is None:
            if len(self._by_key) >= _MOST_FLIGHTS:
                return None
            flight = self._by_key[key] = Flight(self, key)
            return flight
        if len(flight.waiters) >= _MOST_WAITERS:
            return None
        waiter: asyncio.Future[Kept | Flight | None]
        waiter = asyncio.get_running_loop().create_future()
        flight.waiters.append(waiter)
        try:
            async with asyncio.timeout(self._most_wait_s):
                return await waiter
        except BaseException as error:
            handed = waiter.result() if waiter.done() and not waiter.cancelled() else None
            if isinstance(handed, Flight):
                handed.land(None)  # in the very moment in which it went: the next one takes it
            if isinstance(error, TimeoutError):
                return None
            raise

    def landed(self, flight: Flight, kept: Kept | None) -> None:
        """See Flight.land."""
        waiting = deque(one for one in flight.waiters if not one.done())
        flight.waiters.clear()
        if kept is None and waiting and flight.tries < _MOST_TRIES:
            following = Flight(self, flight.key, flight.tries + 1)
            first = waiting.popleft()
            following.waiters = waiting
            self._by_key[flight.key] = following
            first.set_result(following)
            return
        del self._by_key[flight.key]
        for one in waiting:
            one.set_result(kept)
