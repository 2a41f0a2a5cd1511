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
    """A counter with its values by label."""

    name: str
    """Without `_total`."""
    help: str
    labels: Labels = ()
    """Their names."""
    values: dict[Labels, int] = field(default_factory=dict)
    """Values by the values of the labels, in that order."""

    def add(self, labels: Labels, amount: int = 1) -> None:
        """`amount` more, never less than 0."""
        self.values[labels] = self.values.get(labels, 0) + amount


@dataclass(slots=True)
class Distribution:
    """The counts of one histogram by bucket, and the sum of its values."""

    counts: list[int]
    """Counts of values above the previous bound and at most this one; the last one counts the
    rest."""
    total: float = 0.0


@dataclass(slots=True)
class HistogramSeries:
    """A histogram with its distributions by label."""

    name: str
    help: str
    labels: Labels
    bounds: tuple[float, ...]
    """Upper ones, rising, each inside its bucket."""
    values: dict[Labels, Distribution] = field(default_factory=dict)

    def observe(self, labels: Labels, value: float) -> None:
        """One value."""
        found = self.values.get(labels)
        if found is None:
            found = self.values[labels] = Distribution([0] * (len(self.bounds) + 1))
        found.counts[bisect_left(self.bounds, value)] += 1
        found.total += value
