"""/metrics in Prometheus's text format; the library is imported at the first scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headrace.gateway.telemetry.live_collector import LiveCollector
from headrace.gateway.telemetry.standing import Standing
from headrace.telemetry.series import CounterSeries, HistogramSeries
from headrace.telemetry.series_collector import SeriesCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Exposition:
    """A renderer of /metrics. `processes` collects memory and CPU time; default: this process's."""

    def __init__(
        self,
        series: Iterable[CounterSeries | HistogramSeries],
        standing: Callable[[], Standing],
        in_flight: Callable[[], int],
        processes: Collector | None = None,
    ) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(SeriesCollector(series))
        self._registry.register(LiveCollector(standing, in_flight))
        self._registry.register(processes or ProcessCollector(registry=None))

    def text(self) -> bytes:
        """The text of all metrics."""
        return generate_latest(self._registry)
