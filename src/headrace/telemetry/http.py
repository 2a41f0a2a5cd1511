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

    def answered(self, endpoint: str, status: int) -> None:
        """A request was answered; `endpoint` is a route's path, never the URL a client sent."""
        self._requests.labels(endpoint=endpoint, status=str(status)).inc()
