"""What the server itself says: its queue, whom it refused, whether it can serve, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace.telemetry import buckets
from headrace.telemetry.families import Families

REFUSALS = ("requests", "tokens")
"""Limits of the queue that a request can meet; there from the start, so that rates begin at 0."""

RESTARTS = ("died", "stalled", "failed_to_load", "requested")
"""Why an engine is started again; there from the start as well."""


class Queue(Protocol):
    """The queue and its limits; `refused` counts requests by the limit they met."""

    @property
    def max_requests(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def num_queued(self) -> int: ...
    @property
    def num_queued_tokens(self) -> int: ...
    @property
    def num_queued_keys(self) -> int: ...
    @property
    def refused(self) -> Mapping[str, int]: ...


class ServerCollector(Collector):
    """Gauges and counters of the queue. `ready` and `tasks` are called at each scrape."""

    def __init__(self, queue: Queue, ready: Callable[[], bool], tasks: Callable[[], int]) -> None:
        self._queue = queue
        self._ready = ready
        self._tasks = tasks
        self._make = Families({})

    def collect(self) -> Iterator[Metric]:
        """Every family, in a fixed order."""
        make, queue = self._make, self._queue
        yield make.gauge("headrace:ready", "1 while requests can be served.", self._ready())
        yield make.gauge(
            "headrace:server_tasks",
            "Tasks in the server's event loop; constant while there are no requests.",
            self._tasks(),
        )
        yield make.gauge(
            "headrace:admission_queued_requests",
            "Requests accepted but not yet started by the engine.",
            queue.num_queued,
        )
        yield make.gauge(
            "headrace:admission_queued_tokens",
            "Prompt tokens of requests not yet started by the engine.",
            queue.num_queued_tokens,
        )
        yield make.gauge(
            "headrace:admission_queued_keys",
            "API keys with requests accepted but not yet started by the engine; without shares "
            "of keys (--enable-key-shares) all requests count as of one.",
            queue.num_queued_keys,
        )
        yield make.gauge(
            "headrace:admission_max_queued_requests",
            "Maximum number of requests that may wait (--max-num-queued-reqs), in addition "
            "to free slots.",
            queue.max_requests,
        )
        yield make.gauge(
            "headrace:admission_max_queued_tokens",
            "Maximum prompt tokens that may wait (--max-num-queued-tokens).",
            queue.max_tokens,
        )
        yield make.counters(
            "headrace:admission_refused",
            "Requests refused because the queue was full, by limit.",
            "reason",
            dict.fromkeys(REFUSALS, 0) | dict(queue.refused),
        )


class RecoveryMetrics:
    """A counter of an engine's restarts, each reported by whoever watches the engine."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._restarts = Counter(
            "headrace:engine_restarts",
            "Attempts to restart the engine, by reason.",
            ["reason"],
            registry=registry,
        )
        for reason in RESTARTS:
            self._restarts.labels(reason=reason)
        self._recovery = Histogram(
            "headrace:engine_recovery_seconds",
            "Time from an engine's end until the next one is ready.",
            registry=registry,
            buckets=buckets.RECOVERY_S,
        )

    def restarted(self, reason: str) -> None:
        """Another engine is started; `reason` is one of RESTARTS."""
        self._restarts.labels(reason=reason).inc()

    def recovered(self, seconds: float) -> None:
        """The next one serves, so long after the end of the one before."""
        self._recovery.observe(seconds)
