"""What a file may switch on: imported where it does, so that who uses little starts quickly.

Each is None where the file does not use it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.gateway.building.dialects import client_side
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.settings.composed import made_of
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.model import Strategy
from headrace.gateway.settings.secret import Sources
from headrace.gateway.targets.provider import Provider
from headrace.gateway.telemetry.traffic_series import TrafficSeries
from headrace.http.large_bodies import LargeBodies

if TYPE_CHECKING:
    from headrace.gateway.cache.cache import ResponseCache
    from headrace.gateway.engines.poller import EnginePollers
    from headrace.gateway.guards.guardrails import Guardrails
    from headrace.gateway.prompts.prompts import Prompts
    from headrace.gateway.serving.composed.ways import Ways
    from headrace.gateway.serving.serving import Serving

_ENGINE_STRATEGIES: tuple[Strategy, ...] = ("prefix_aware", "engine_load")


def cache(
    settings: GatewaySettings,
    sources: Sources,
    wall_s: Callable[[], float],
    clock_ns: Callable[[], int],
    serving: Callable[[], Serving],
) -> ResponseCache | None:
    """serving: the gateway's, by the time a question is embedded. Raises ConfigError."""
    if not settings.cache.enabled:
        return None
    from headrace.gateway.building.cache import cache_of

    return cache_of(
        settings.cache,
        sources,
        wall_s,
        lambda: clock_ns() * 1e-9,
        redis=settings.access.redis,
        serving=serving,
    )


def guardrails(
    settings: GatewaySettings, sources: Sources, wall_s: Callable[[], float]
) -> Guardrails | None:
    """Raises ConfigError naming the guardrail."""
    if not settings.guardrails:
        return None
    from headrace.gateway.building.guards import guardrails_of

    return guardrails_of(settings, sources, wall_s)


def prompts(settings: GatewaySettings, sources: Sources) -> Prompts | None:
    """Raises ConfigError."""
    if not settings.prompts and settings.prompts_folder is None:
        return None
    from headrace.gateway.building.prompts import prompts_of

    return prompts_of(settings, sources.folder)


def ways(
    settings: GatewaySettings,
    router: Router,
    chosen: Sticky,
    clock_ns: Callable[[], int],
    source: random.Random,
    large_bodies: LargeBodies,
) -> Ways | None:
    """Of models that are made of others. chosen: what conversations were given."""
    if not any(made_of(model) for model in settings.models.values()):
        return None
    from headrace.gateway.building.ways import ways_of

    chat = client_side("openai-chat")
    return ways_of(
        settings, router, chosen, chat, clock_ns=clock_ns, source=source, large_bodies=large_bodies
    )


def engines(
    plain: Mapping[str, Route],
    settings: GatewaySettings,
    providers: Mapping[str, Provider],
    clock_ns: Callable[[], int],
    traffic: TrafficSeries,
) -> tuple[Mapping[str, Route], EnginePollers | None]:
    """Routes with the order of those that go by engines of our own, and who reads these."""
    if not any(model.strategy in _ENGINE_STRATEGIES for model in settings.models.values()):
        return plain, None
    from headrace.gateway.building.engines import pollers_of, with_engines

    routes, state = with_engines(plain, settings)
    return routes, pollers_of(state, routes, providers, settings, clock_ns, traffic)
