"""Series as families of Prometheus, made when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.telemetry.series import CounterSeries, HistogramSeries


class SeriesCollector(Collector):
    """A collector that makes every series a family, with or without samples."""

    def __init__(self, series: Iterable[CounterSeries | HistogramSeries]) -> None:
        self._series = tuple(series)

    def collect(self) -> Iterator[Metric]:
        """As the figures are now."""
        for series in self._series:
            yield _counter(series) if isinstance(series, CounterSeries) else _histogram(series)


def _counter(series: CounterSeries) -> Metric:
    family = CounterMetricFamily(series.name, series.help, labels=series.labels)
    for labels in sorted(series.values):
        family.add_metric(labels, series.values[labels])
    return family


def _histogram(series: HistogramSeries) -> Metric:
    family = HistogramMetricFamily(series.name, series.help, labels=series.labels)
    edges = [*map(repr, map(float, series.bounds)), "+Inf"]
    for labels in sorted(series.values):
        found = series.values[labels]
        buckets = list(zip(edges, accumulate(found.counts), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=found.total)
    return family
