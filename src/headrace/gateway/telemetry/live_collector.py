"""Metrics of the gateway's current state, read at each scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.gateway.telemetry.log_status import LogStanding
from headrace.gateway.telemetry.standing import Standing, TargetStanding

_BREAKER_STATES = ("closed", "open", "probing")


class LiveCollector(Collector):
    """A collector of the gateway's state; `standing` and `in_flight` are called at each scrape."""

    def __init__(self, standing: Callable[[], Standing], in_flight: Callable[[], int]) -> None:
        self._standing = standing
        self._in_flight = in_flight

    def describe(self) -> Iterator[Metric]:
        """Nothing; called when the collector is registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All metric families, in a fixed order."""
        now = self._standing()
        yield _gauge("headrace:ready", "1 while a model can be served.", now.ready)
        yield _gauge("headrace:gateway_in_flight", "Requests under way.", self._in_flight())
        yield _gauge("headrace:gateway_tasks", "Tasks of the event loop.", _tasks())
        targets = {
            target.target: target for model in now.models.values() for target in model.targets
        }
        yield from _of_targets([targets[name] for name in sorted(targets)])
        keys = GaugeMetricFamily(
            "headrace:gateway_keys", "A provider's credentials.", labels=["provider", "state"]
        )
        connections = GaugeMetricFamily(
            "headrace:gateway_connections",
            "Connections to a provider.",
            labels=["provider", "state"],
        )
        for name, provider in sorted(now.providers.items()):
            keys.add_metric([name, "usable"], provider.keys - provider.resting_keys)
            keys.add_metric([name, "cooling_down"], provider.resting_keys)
            working = provider.connections - provider.resting_connections
            connections.add_metric([name, "active"], working)
            connections.add_metric([name, "idle"], provider.resting_connections)
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
                "Sums of spending that are not yet saved in the store.",
                accounts.unsaved,
            )
        if now.request_log is not None:
            yield from _of_request_log(now.request_log)


def _of_request_log(log: LogStanding) -> Iterator[Metric]:
    yield _gauge(
        "headrace:gateway_request_log_up",
        "1 while records can be written to the request log.",
        not log.error,
    )
    yield _gauge(
        "headrace:gateway_request_log_queued_records",
        "Records of requests that wait to be written.",
        log.waiting,
    )
    yield _gauge(
        "headrace:gateway_request_log_queued_bytes",
        "Memory used by records that wait to be written.",
        log.waiting_bytes,
    )
    lost = CounterMetricFamily(
        "headrace:gateway_request_log_lost",
        "Records of requests that were lost because the queue was full or writing failed.",
    )
    lost.add_metric([], log.lost)
    yield lost


def _of_targets(targets: list[TargetStanding]) -> Iterator[Metric]:
    in_flight = GaugeMetricFamily(
        "headrace:gateway_target_in_flight", "Requests under way at a target.", labels=["target"]
    )
    breaker = GaugeMetricFamily(
        "headrace:gateway_breaker_state",
        "1 for the current state of a target's breaker.",
        labels=["target", "state"],
    )
    for target in targets:
        in_flight.add_metric([target.target], target.in_flight)
        for state in _BREAKER_STATES:
            breaker.add_metric([target.target, state], float(target.breaker == state))
    yield in_flight
    yield breaker


def _tasks() -> int:
    """The number of tasks; requests that are over leave none, so it is flat when idle."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # outside of a loop
        return 0


def _gauge(name: str, help: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, help)
    family.add_metric([], value)
    return family
