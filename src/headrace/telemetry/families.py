"""Metric families made at a scrape from figures kept elsewhere, all with the same labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector


class Families:
    """A maker of families of one sample, of one sample per value of a label, or of a histogram."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)

    def gauge(self, name: str, help: str, value: float, **labels: str) -> Metric:
        """One sample, with these labels too."""
        everything = self._labels | labels
        family = GaugeMetricFamily(name, help, labels=list(everything))
        family.add_metric(list(everything.values()), value)
        return family

    def counter(self, name: str, help: str, value: float) -> Metric:
        """One sample; `_total` is added to the name."""
        family = CounterMetricFamily(name, help, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def gauges(self, name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
        """One sample per key of `values`, which is the value of `label`."""
        family = GaugeMetricFamily(name, help, labels=[*self._labels, label])
        for key in sorted(values):
            family.add_metric([*self._labels.values(), key], values[key])
        return family

    def counters(self, name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
        """Like gauges."""
        family = CounterMetricFamily(name, help, labels=[*self._labels, label])
        for key in sorted(values):
            family.add_metric([*self._labels.values(), key], values[key])
        return family

    def histogram(
        self,
        name: str,
        help: str,
        bounds: Sequence[float],
        counts: Sequence[int],
        total: float,
    ) -> Metric:
        """`counts` has how many were at most each bound and above the one before; the rest last.

        total: the sum of what was observed. Empty counts are a histogram of nothing.
        """
        if counts and len(counts) != len(bounds) + 1:
            raise ValueError(f"{name}: {len(counts)} counts for {len(bounds)} bounds and the rest")
        below = accumulate(counts or [0] * (len(bounds) + 1))
        edges = [*map(repr, map(float, bounds)), "+Inf"]
        family = HistogramMetricFamily(name, help, labels=list(self._labels))
        buckets = list(zip(edges, below, strict=True))
        family.add_metric(list(self._labels.values()), buckets=buckets, sum_value=total)
        return family


class FormerName(Collector):
    """The samples of another collector's family under the name it had before."""

    def __init__(self, collector: Collector, name: str, former: str) -> None:
        self._collector = collector
        self._name = name
        self._former = former

    def collect(self) -> Iterator[Metric]:
        """The family, as it is now."""
        for family in self._collector.collect():
            renamed = Metric(self._former, f"The former name of {self._name}.", family.type)
            for sample in family.samples:
                name = self._former + sample.name.removeprefix(self._name)
                renamed.samples.append(sample._replace(name=name))
            yield renamed
