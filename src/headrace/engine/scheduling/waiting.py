"""The queue: requests that wait, in the order in which they may enter.

Lower priorities first, and among equals whoever came first, behind those that have run before and
were put back. A sorted list: putting in, taking out and cancelling are a bisection and the moving
of a few kilobytes of pointers, also with tens of thousands waiting.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from headrace.engine.request import Request


class WaitingQueue:
    """Requests in order; each at most once. May be added to, behind it, while it is walked."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Request]] = []
        self._places: dict[Request, tuple[int, int]] = {}
        self._last_put_back = 0
        self.num_put_back = 0
        """Of those that wait."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        for _, _, request in self._entries:
            yield request

    @property
    def head(self) -> Request:
        """Who comes first; IndexError where nobody waits."""
        return self._entries[0][2]

    def add(self, request: Request) -> None:
        """Queue a new request behind those of its priority that came before it."""
        self._enter(request, request.arrival)

    def put_back(self, request: Request) -> None:
        """Queue one that ran, before all others of its priority."""
        self._last_put_back -= 1
        self.num_put_back += 1
        self._enter(request, self._last_put_back)

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it is; KeyError where it does not wait."""
        place = self._places.pop(request)
        self.num_put_back -= place[1] < 0
        del self._entries[bisect_left(self._entries, place)]

    def _enter(self, request: Request, order: int) -> None:
        assert request not in self._places, "a request waits once"
        self._places[request] = request.priority, order
        # No two have the same place, so requests themselves are never compared.
        insort(self._entries, (request.priority, order, request))
