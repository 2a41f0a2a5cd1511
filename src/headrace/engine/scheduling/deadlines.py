"""Which requests have to end by when. A heap; knows no clock: whoever asks says what time it is."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headrace.engine.request import Request, State

FEWEST_SWEPT = 64
"""Entries of requests that have ended below which they stay, as long as any request is left."""


class Deadlines:
    """Deadlines of requests. Those that ended in time are forgotten by `sweep`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, request: Request, at_s: float) -> None:
        """Have `request` end at `at_s`."""
        heappush(self._heap, (at_s, request.arrival, request))

    def passed(self, now_s: float) -> list[Request]:
        """Requests that have not ended and should have by now, the first due first; once each."""
        due: list[Request] = []
        while self._heap and self._heap[0][0] <= now_s:
            request = heappop(self._heap)[2]
            if request.state is not State.FINISHED:
                due.append(request)
        return due

    def sweep(self, num_open: int) -> None:
        """Forget requests that have ended, where they are many beside the `num_open` that have not.

        Requests mostly end long before their deadline, and each holds its tokens. At least half
        of what a sweep looks at goes, so that it costs a request little however many there are.
        """
        if len(self._heap) > (2 * num_open + FEWEST_SWEPT if num_open else 0):
            self._heap = [each for each in self._heap if each[2].state is not State.FINISHED]
            heapify(self._heap)
