"""Models whose targets are engines of ours: who is read, and by what their order is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from headrace.gateway.engines.order import EngineOrder
from headrace.gateway.engines.poller import EnginePollers
from headrace.gateway.engines.state import EngineState
from headrace.gateway.routing.route import Route
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.model import ModelSettings
from headrace.gateway.targets.provider import Provider
from headrace.gateway.telemetry.traffic_series import TrafficSeries

_STRATEGIES = ("prefix_aware", "engine_load")


def with_engines(
    routes: Mapping[str, Route], settings: GatewaySettings
) -> tuple[dict[str, Route], EngineState | None]:
    """Routes with their order; None where no model goes by engines."""
    ours = _models(settings)
    if not ours:
        return dict(routes), None
    state = EngineState(
        {target.name: target for name in ours for target in routes[name].targets}.values()
    )
    found = dict(routes)
    for name, model in ours.items():
        by_prefix = model.strategy == "prefix_aware"
        order = EngineOrder(state, model.engines, by_prefix=by_prefix)
        found[name] = dataclasses.replace(routes[name], engine_order=order)
    return found, state


def pollers_of(
    state: EngineState | None,
    routes: Mapping[str, Route],
    providers: Mapping[str, Provider],
    settings: GatewaySettings,
    clock_ns: Callable[[], int],
    traffic: TrafficSeries,
) -> EnginePollers | None:
    """An engine of several models is read as often as the one that wants it most often."""
    if state is None:
        return None
    interval_s: dict[str, float] = {}
    for name, model in _models(settings).items():
        for target in routes[name].targets:
            own_s = model.engines.interval_s
            at = target.provider.name
            interval_s[at] = min(own_s, interval_s.get(at, own_s))

    def count(name: str, is_read: bool) -> None:
        traffic.engine_reads.add((name, "read" if is_read else "failed"))

    return EnginePollers(state, providers, interval_s, clock_ns, count)


def _models(settings: GatewaySettings) -> dict[str, ModelSettings]:
    return {name: one for name, one in settings.models.items() if one.strategy in _STRATEGIES}
