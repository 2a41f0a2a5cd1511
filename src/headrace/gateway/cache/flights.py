"""Identical requests under way: the first is sent, the others wait for its answer.

A flight ends with an answer that all its waiters get, or without one: then the first waiter takes
over and sends its request, and the others wait for that.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.gateway.cache.kept import Kept

# Beyond these limits a request is sent on its own: queues are bounded.
_MOST_FLIGHTS = 10_000
_MOST_WAITERS = 1_000
# After so many failures waiters no longer wait for another attempt.
_MOST_TRIES = 3


class Flight:
    """One request that is being answered. Its holder has to `land` it, whatever happens."""

    def __init__(self, flights: Flights, key: bytes, tries: int = 1) -> None:
        self._flights = flights
        self.key = key
        self.tries = tries
        self.waiters: deque[asyncio.Future[Kept | Flight | None]] = deque()
        self._has_landed = False

    def land(self, kept: Kept | None) -> None:
        """Give the answer to all waiters; without one the next waiter takes over. A second call
        does nothing."""
        if not self._has_landed:
            self._has_landed = True
            self._flights.landed(self, kept)


class Flights:
    """Requests under way by exact cache key, so that those that share one may share an answer."""

    def __init__(self, most_wait_s: float) -> None:
        self._most_wait_s = most_wait_s
        self._by_key: dict[bytes, Flight] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    async def join(self, key: bytes) -> Kept | Flight | None:
        """The answer of the request under way; or a flight, if the caller is the one to send it; or
        None if the caller sends its own request and no other waits for it."""
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
                handed.land(None)  # it was handed over in that very moment: the next takes it
            if isinstance(error, TimeoutError):
                return None
            raise

    def landed(self, flight: Flight, kept: Kept | None) -> None:
        """See Flight.land."""
        waiting = deque(waiter for waiter in flight.waiters if not waiter.done())
        flight.waiters.clear()
        if kept is None and waiting and flight.tries < _MOST_TRIES:
            following = Flight(self, flight.key, flight.tries + 1)
            first = waiting.popleft()
            following.waiters = waiting
            self._by_key[flight.key] = following
            first.set_result(following)
            return
        del self._by_key[flight.key]
        for waiter in waiting:
            waiter.set_result(kept)
