"""Metrics of how the gateway stands, read when somebody scrapes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.gateway.telemetry.log_status import LogStanding
from headrace.gateway.telemetry.standing import Standing, TargetStanding

_BREAKER_STATES = ("closed", "open", "probing")


class LiveCollector(Collector):
    """standing, in_flight: called at each scrape."""

    def __init__(self, standing: Callable[[], Standing], in_flight: Callable[[], int]) -> None:
        self._standing = standing
        self._in_flight = in_flight

    def describe(self) -> Iterator[Metric]:
        """Nothing: a collector is asked this when it is registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every family, in a fixed order."""
        now = self._standing()
        yield _gauge("headrace:ready", "1 while a model can be served.", now.ready)
        yield _gauge("headrace:gateway_in_flight", "Requests under way.", self._in_flight())
        yield _gauge("headrace:gateway_tasks", "Tasks of the event loop.", _tasks())
        targets = {one.target: one for model in now.models.values() for one in model.targets}
        yield from _of_targets([targets[name] for name in sorted(targets)])
        keys = GaugeMetricFamily(
            "headrace:gateway_keys", "A provider's credentials.", labels=["provider", "state"]
        )
        connections = GaugeMetricFamily(
            "headrace:gateway_connections",
            "Connections to a provider.",
            labels=["provider", "state"],
        )
        for name, one in sorted(now.providers.items()):
            keys.add_metric([name, "usable"], one.keys - one.resting_keys)
            keys.add_metric([name, "cooling_down"], one.resting_keys)
            working = one.connections - one.resting_connections
            connections.add_metric([name, "active"], working)
            connections.add_metric([name, "idle"], one.resting_connections)
        yield keys
        yield connections
        accounts = now.accounts
        if accounts is not None:
            yield _gauge(
                "headrace:gateway_accounts_up",
                "1 while limits and budgets can be counted.",
                accounts.counters.reachable,
            )
            yield _gauge(
                "headrace:gateway_accounts_unsaved",
                "Sums of what was spent that the store does not have yet.",
                accounts.unsaved,
            )
        if now.request_log is not None:
            yield from _of_request_log(now.request_log)


def _of_request_log(log: LogStanding) -> Iterator[Metric]:
    yield _gauge(
        "headrace:gateway_request_log_up",
        "1 while records of requests can be written.",
        not log.error,
    )
    yield _gauge(
        "headrace:gateway_request_log_queued_records",
        "Records of requests that are not yet written.",
        log.waiting,
    )
    yield _gauge(
        "headrace:gateway_request_log_queued_bytes",
        "What they take in memory.",
        log.waiting_bytes,
    )
    lost = CounterMetricFamily(
        "headrace:gateway_request_log_lost",
        "Records of requests that there was no room for, or that could not be written.",
    )
    lost.add_metric([], log.lost)
    yield lost


def _of_targets(targets: list[TargetStanding]) -> Iterator[Metric]:
    in_flight = GaugeMetricFamily(
        "headrace:gateway_target_in_flight", "Requests at a target.", labels=["target"]
    )
    breaker = GaugeMetricFamily(
        "headrace:gateway_breaker_state",
        "1 for the state a target's breaker is in.",
        labels=["target", "state"],
    )
    for one in targets:
        in_flight.add_metric([one.target], one.in_flight)
        for state in _BREAKER_STATES:
            breaker.add_metric([one.target, state], float(one.breaker == state))
    yield in_flight
    yield breaker


def _tasks() -> int:
    """None are left of requests that are over: flat while nothing is asked."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # outside of a loop
        return 0


def _gauge(name: str, help: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, help)
    family.add_metric([], value)
    return family
