"""Whether the server keeps up, asked while a run is on: one that does not need not go on.

The rule is that of `saturation`; requests are counted by what shows without reading their bodies.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable

from headrace.bench.saturation import saturation
from headrace.bench.timer import Deadline, Timer

LOOK_NS = 1_000_000_000


class SaturationWatch:
    """A watch that runs from `start` to `stop` and calls `saturated` once, when the rule first says
    that the server does not keep up."""

    def __init__(
        self,
        timer: Timer,
        saturated: Callable[[], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._timer = timer
        self._saturated = saturated
        self._clock_ns = clock_ns
        self._came_ns: list[int] = []
        self._completed_ns: list[int] = []
        self._over_ns: list[int] = []
        self._deadline: Deadline | None = None

    def start(self) -> None:
        """Begin to look."""
        self._deadline = self._timer.call_at_ns(self._clock_ns() + LOOK_NS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._deadline is not None:
            self._deadline.cancel()

    def came(self, at_ns: int) -> None:
        """A request is due; nearly always the last so far."""
        insort(self._came_ns, at_ns)

    def over(self, came_ns: int, end_ns: int, *, failed: bool) -> None:
        """One has ended."""
        insort(self._over_ns, came_ns)
        if not failed:
            insort(self._completed_ns, end_ns)

    def _look(self) -> None:
        now_ns = self._clock_ns()
        found = saturation(self._came_ns, self._completed_ns, self._over_ns, now_ns)
        if found is not None and found.saturated:
            self._saturated()
            return
        self._deadline = self._timer.call_at_ns(now_ns + LOOK_NS, self._look)
