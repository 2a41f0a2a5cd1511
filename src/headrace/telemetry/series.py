"""Counters and histograms by labels, kept by one thread without locks.

Counting is a lookup and an addition; names, bounds and formats matter at a scrape only, and so does
the library that writes them (`headrace.telemetry.series_collector`). Counters hold whole numbers of
any size: what is a fraction elsewhere (dollars, seconds) is counted in its smallest unit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

Labels = tuple[str, ...]


@dataclass(slots=True)
class CounterSeries:
    """name: without `_total`. labels: their names; values: by the labels' values, in that order."""

    name: str
    help: str
    labels: Labels = ()
    values: dict[Labels, int] = field(default_factory=dict)

    def add(self, labels: Labels, amount: int = 1) -> None:
        """`amount` more, never less than 0."""
        self.values[labels] = self.values.get(labels, 0) + amount


@dataclass(slots=True)
class Distribution:
    """counts: of what was at most each bound and above the one before; the rest last."""

    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class HistogramSeries:
    """bounds: upper ones, rising, each inside its bucket."""

    name: str
    help: str
    labels: Labels
    bounds: tuple[float, ...]
    values: dict[Labels, Distribution] = field(default_factory=dict)

    def observe(self, labels: Labels, value: float) -> None:
        """One value."""
        found = self.values.get(labels)
        if found is None:
            found = self.values[labels] = Distribution([0] * (len(self.bounds) + 1))
        found.counts[bisect_left(self.bounds, value)] += 1
        found.total += value
