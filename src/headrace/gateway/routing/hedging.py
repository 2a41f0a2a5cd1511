"""When a model's requests are hedged: after how long, and how many of them.

"The tail at scale" (Dean and Barroso, 2013): a second request once the first has taken longer than
the 95th percentile cuts the tail for some 5 % more load.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headrace.gateway.settings.traffic import HedgeSettings

# How many recent times count: enough for a 99th percentile, and soon replaced by today's.
_MOST_TIMES = 512
_LEAST_TIMES = 20
_WINDOW_S = 60


class HedgeCounts(NamedTuple):
    """Counts of one model's hedges."""

    started: int
    """Hedges sent."""
    won: int
    """Hedges whose answer was used."""
    over_share: int
    """Slow requests that were not hedged because the share was used up."""


class _Times:
    """The most recent times, by arrival and by length."""

    def __init__(self) -> None:
        self._newest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, time_s: float) -> None:
        if len(self._newest) >= _MOST_TIMES:
            del self._sorted[bisect_left(self._sorted, self._newest.popleft())]
        self._newest.append(time_s)
        insort(self._sorted, time_s)

    def percentile(self, percent: float) -> float | None:
        """The percentile by nearest rank; None while it would be the maximum of too few."""
        share, known = percent / 100, len(self._sorted)
        if known < max(_LEAST_TIMES, math.ceil(1 / (1 - share))):
            return None
        return self._sorted[min(known - 1, math.ceil(share * known) - 1)]


class Hedging:
    """The hedging of one model. Times are in seconds of one monotonic clock and handed in. `count`
    is called with the name of each count in `counts` as it rises."""

    def __init__(self, settings: HedgeSettings, count: Callable[[str], None] | None = None) -> None:
        self._settings = settings
        self._count = count
        # A whole answer takes as long as a complete stream, so the two are kept apart.
        self._streams, self._wholes = _Times(), _Times()
        # For each second with a request: time, requests, hedges.
        self._seconds: deque[list[int]] = deque()
        self._requests = 0
        self._hedges = 0
        self._counted = dict.fromkeys(HedgeCounts._fields, 0)

    @property
    def most(self) -> int:
        """The most hedges for one request."""
        return self._settings.max_hedges

    @property
    def counts(self) -> HedgeCounts:
        """Counts since the configuration was read."""
        return HedgeCounts(**self._counted)

    def began(self, now_s: float) -> None:
        """Count a request of the model."""
        self._second(now_s)[1] += 1
        self._requests += 1

    def after_s(self, *, stream: bool) -> float | None:
        """How long to wait for the first content; None while too few times are known."""
        settings = self._settings
        if settings.after_ms is not None:
            return settings.after_ms * 1e-3
        assert settings.after_percentile is not None
        times = self._streams if stream else self._wholes
        return times.percentile(settings.after_percentile)

    def take(self, now_s: float) -> bool:
        """Whether one more hedge may be sent, which is then counted."""
        second = self._second(now_s)
        if self._hedges + 1 > self._settings.share * self._requests:
            self._counts("over_share")
            return False
        second[2] += 1
        self._hedges += 1
        self._counts("started")
        return True

    def won(self) -> None:
        """Count a hedge whose answer was used."""
        self._counts("won")

    def had_first_token(self, after_s: float, *, stream: bool) -> None:
        """Record when a target's first content came, or when it was given up without content:
        without the latter the percentile would keep falling."""
        (self._streams if stream else self._wholes).add(after_s)

    def _counts(self, what: str) -> None:
        self._counted[what] += 1
        if self._count is not None:
            self._count(what)

    def _second(self, now_s: float) -> list[int]:
        at = int(now_s)
        while self._seconds and self._seconds[0][0] <= at - _WINDOW_S:
            _, requests, hedges = self._seconds.popleft()
            self._requests -= requests
            self._hedges -= hedges
        if not self._seconds or self._seconds[-1][0] != at:
            self._seconds.append([at, 0, 0])
        return self._seconds[-1]
