"""HTTP requests by endpoint and outcome."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class HttpMetrics:
    """Counters over all endpoints; unlike the other metrics they exist before a model is loaded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "headrace:http_requests",
            "HTTP requests by endpoint and status; status 499 is a client that disconnected.",
            ["endpoint", "status"],
            registry=registry,
        )
        self._series: dict[tuple[str, int], Counter] = {}
        """By endpoint and status: looking one up in the counter takes as long as a short reply."""

    def answered(self, endpoint: str, status: int) -> None:
        """A request was answered; `endpoint` is a route's path, never the URL a client sent."""
        series = self._series.get((endpoint, status))
        if series is None:
            series = self._requests.labels(endpoint=endpoint, status=str(status))
            self._series[endpoint, status] = series
        series.inc()
