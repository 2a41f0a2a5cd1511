"""Adds up what workers counted; figures of workers that ended go on to count.

Figures arrive about once a second and at each scrape. A scrape adds up the latest of every worker,
so that no counter ever goes backwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headrace.gateway.workers.messages import CounterFigures, HistogramFigures
from headrace.telemetry.series import CounterSeries, Distribution, HistogramSeries

Series = CounterSeries | HistogramSeries

# msgpack has 64 bits for an integer; a figure that stops rising is better than none at all.
_MOST = 2**64 - 1


def counted(series: Iterable[Series]) -> tuple[list[CounterFigures], list[HistogramFigures]]:
    """The counts of a process so far."""
    counters, histograms = [], []
    for counter_or_histogram in series:
        if isinstance(counter_or_histogram, CounterSeries):
            values = [
                (labels, min(value, _MOST)) for labels, value in counter_or_histogram.values.items()
            ]
            counters.append(CounterFigures(counter_or_histogram.name, values))
        else:
            seen = [
                (labels, at.counts, at.total) for labels, at in counter_or_histogram.values.items()
            ]
            histograms.append(HistogramFigures(counter_or_histogram.name, seen))
    return counters, histograms


class Sum:
    """Series with the same names as `like` that hold the sums of several processes."""

    def __init__(self, like: Sequence[Series]) -> None:
        self.series = tuple(_empty(series) for series in like)
        self._by_name = {series.name: series for series in self.series}

    def figures(self) -> tuple[list[CounterFigures], list[HistogramFigures]]:
        """The sums, in the form in which a process sends its figures."""
        return counted(self.series)

    def add(
        self, counters: Iterable[CounterFigures], histograms: Iterable[HistogramFigures]
    ) -> None:
        """Add a process's figures. Unknown names are ignored."""
        for counter in counters:
            series = self._by_name.get(counter.name)
            if isinstance(series, CounterSeries):
                for labels, value in counter.values:
                    series.add(labels, value)
        for histogram in histograms:
            series = self._by_name.get(histogram.name)
            if isinstance(series, HistogramSeries):
                for labels, counts, total in histogram.values:
                    _add(series, labels, counts, total)


def _empty(series: Series) -> Series:
    if isinstance(series, CounterSeries):
        return replace(series, values={})
    return replace(series, values={})


def _add(series: HistogramSeries, labels: tuple[str, ...], counts: list[int], total: float) -> None:
    distribution = series.values.get(labels)
    if distribution is None:
        distribution = series.values[labels] = Distribution([0] * (len(series.bounds) + 1))
    distribution.counts = [
        count + more for count, more in zip(distribution.counts, counts, strict=True)
    ]
    distribution.total += total
