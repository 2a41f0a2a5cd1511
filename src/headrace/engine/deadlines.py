"""Which requests have to end by when. A heap; knows no clock: whoever asks says what time it is."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headrace.engine.request import Request, State

FEWEST_SWEPT = 64
"""Entries below which nobody looks for those of requests that have ended."""


class Deadlines:
    """Deadlines of requests. One that ended in time is forgotten when there are many such."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._sweep_at = FEWEST_SWEPT

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, request: Request, at_s: float) -> None:
        """Have `request` end at `at_s`."""
        if len(self._heap) >= self._sweep_at:
            # Requests mostly end long before their deadline, and each holds its prompt.
            self._heap = [one for one in self._heap if one[2].state is not State.FINISHED]
            heapify(self._heap)
            self._sweep_at = max(FEWEST_SWEPT, 2 * len(self._heap))
        heappush(self._heap, (at_s, request.arrival, request))

    def passed(self, now_s: float) -> list[Request]:
        """Requests that have not ended and should have by now, the first due first; once each."""
        due: list[Request] = []
        while self._heap and self._heap[0][0] <= now_s:
            request = heappop(self._heap)[2]
            if request.state is not State.FINISHED:
                due.append(request)
        return due
