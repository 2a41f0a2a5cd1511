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

# Times that are looked back at: enough for a 99th percentile, and soon those of today.
_MOST_TIMES = 512
_LEAST_TIMES = 20
_WINDOW_S = 60


class HedgeCounts(NamedTuple):
    """started: targets that were asked besides; won: of these, whose answer was told. over_share:
    requests that were slow and not hedged, as so many were already."""

    started: int
    won: int
    over_share: int


class _Times:
    """The newest, in order of time and of length."""

    def __init__(self) -> None:
        self._newest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, time_s: float) -> None:
        if len(self._newest) >= _MOST_TIMES:
            del self._sorted[bisect_left(self._sorted, self._newest.popleft())]
        self._newest.append(time_s)
        insort(self._sorted, time_s)

    def percentile(self, percent: float) -> float | None:
        """By nearest rank; None while it would be the longest of too few."""
        share, known = percent / 100, len(self._sorted)
        if known < max(_LEAST_TIMES, math.ceil(1 / (1 - share))):
            return None
        return self._sorted[min(known - 1, math.ceil(share * known) - 1)]


class Hedging:
    """State of one model. Times are handed in, in seconds of one monotonic clock. count: hears of
    each that `counts` counts, by its name there."""

    def __init__(self, settings: HedgeSettings, count: Callable[[str], None] | None = None) -> None:
        self._settings = settings
        self._count = count
        # A whole answer takes as long as all of a stream.
        self._streams, self._wholes = _Times(), _Times()
        # Of each second with a request: when, requests, hedges.
        self._seconds: deque[list[int]] = deque()
        self._requests = 0
        self._hedges = 0
        self._counted = dict.fromkeys(HedgeCounts._fields, 0)

    @property
    def most(self) -> int:
        """Targets that may be asked besides the first."""
        return self._settings.max_hedges

    @property
    def counts(self) -> HedgeCounts:
        """Since the file was read."""
        return HedgeCounts(**self._counted)

    def began(self, now_s: float) -> None:
        """A request of the model came."""
        self._second(now_s)[1] += 1
        self._requests += 1

    def after_s(self, *, stream: bool) -> float | None:
        """How long the first content is waited for; None while too few times are known."""
        settings = self._settings
        if settings.after_ms is not None:
            return settings.after_ms * 1e-3
        assert settings.after_percentile is not None
        times = self._streams if stream else self._wholes
        return times.percentile(settings.after_percentile)

    def take(self, now_s: float) -> bool:
        """Whether one more may be sent, which is counted then."""
        second = self._second(now_s)
        if self._hedges + 1 > self._settings.share * self._requests:
            self._counts("over_share")
            return False
        second[2] += 1
        self._hedges += 1
        self._counts("started")
        return True

    def won(self) -> None:
        """The answer of one that was asked besides was told."""
        self._counts("won")

    def had_first_token(self, after_s: float, *, stream: bool) -> None:
        """A target's first content came after so long, or had not come when it was given up:
        without these the percentile would become shorter and shorter."""
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
