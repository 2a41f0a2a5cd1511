"""What workers counted, added up: figures of the dead go on to count.

A worker's figures come about once a second and at each scrape, and a scrape adds up the last that
were heard of everybody, so that no counter ever goes backwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headrace.gateway.workers.messages import CounterFigures, HistogramFigures
from headrace.telemetry.series import CounterSeries, Distribution, HistogramSeries

Series = CounterSeries | HistogramSeries

# msgpack has 64 bits for an integer; a figure that stands still is better than none of a process.
_MOST = 2**64 - 1


def counted(series: Iterable[Series]) -> tuple[list[CounterFigures], list[HistogramFigures]]:
    """What a process counted so far."""
    counters, histograms = [], []
    for one in series:
        if isinstance(one, CounterSeries):
            found = [(labels, min(value, _MOST)) for labels, value in one.values.items()]
            counters.append(CounterFigures(one.name, found))
        else:
            seen = [(labels, at.counts, at.total) for labels, at in one.values.items()]
            histograms.append(HistogramFigures(one.name, seen))
    return counters, histograms


class Sum:
    """Series of the same names as `like`, with the figures of several processes in them."""

    def __init__(self, like: Sequence[Series]) -> None:
        self.series = tuple(_empty(one) for one in like)
        self._by_name = {one.name: one for one in self.series}

    def figures(self) -> tuple[list[CounterFigures], list[HistogramFigures]]:
        """As a process would tell them."""
        return counted(self.series)

    def add(
        self, counters: Iterable[CounterFigures], histograms: Iterable[HistogramFigures]
    ) -> None:
        """A process's. Names that are not known here are passed over."""
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
    found = series.values.get(labels)
    if found is None:
        found = series.values[labels] = Distribution([0] * (len(series.bounds) + 1))
    found.counts = [one + more for one, more in zip(found.counts, counts, strict=True)]
    found.total += total
