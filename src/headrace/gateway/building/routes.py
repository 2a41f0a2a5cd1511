"""Routes and targets of the file."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.gateway.building.prices import CatalogPrices, stated_price
from headrace.gateway.routing.hedging import Hedging
from headrace.gateway.routing.preferences import FREE
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.shadow import Shadow
from headrace.gateway.routing.variants import TakenOut, Variant, Variants
from headrace.gateway.settings.composed import made_of
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.model import ModelSettings
from headrace.gateway.settings.target import TargetSettings
from headrace.gateway.targets.health import Health, OnBreaker
from headrace.gateway.targets.provider import Provider
from headrace.gateway.targets.target import DatedPrice, Price, Target
from headrace.gateway.telemetry.traffic_series import TrafficSeries
from headrace.gateway.upstream.limits import Timeouts

# Names nobody configured are kept for a while; a client that invents names must not fill memory.
_MOST_UNKNOWN = 10_000
# Whose models have variants that cost nothing, under names that end so.
_SELLS_FREE = "openrouter"


class Targets:
    """A maker of targets, one for each place and model; routes that share one share its health."""

    def __init__(
        self,
        settings: GatewaySettings,
        providers: Mapping[str, Provider],
        catalog: Catalog,
        wall_s: Callable[[], float],
        on_breaker: OnBreaker | None = None,
    ) -> None:
        self._settings = settings
        self._providers = providers
        self._prices = CatalogPrices(catalog)
        self._wall_s = wall_s
        self._today = dt.datetime.fromtimestamp(wall_s(), dt.UTC).date()
        self._on_breaker = on_breaker
        self._health: dict[str, Health] = {}

    def target(self, one: TargetSettings) -> Target:
        """A target of the file."""
        name, _, model = one.model.partition("/")
        provider = self._providers[name]
        price, dated = None, None
        kind = self._settings.providers[name].kind or name
        if one.price is not None:
            price = stated_price(one.price)
        elif not provider.local:
            price, dated = self._of_catalog(kind, model)
        if price is None and dated is None and kind == _SELLS_FREE and model.endswith(f":{FREE}"):
            price = Price(input=0, output=0, source="its name at OpenRouter")
        own = one.timeouts
        health = self._health.get(one.model)
        if health is None:
            health = self._health[one.model] = Health(
                self._settings.breaker, name=one.model, on_breaker=self._on_breaker
            )
        return Target(
            name=one.model,
            provider=provider,
            model=model,
            weight=one.weight,
            order=one.order,
            max_in_flight=_share(one.max_in_flight, self._settings.listen.workers),
            pass_priority=_passes_priority(one, provider),
            context_tokens=one.context_tokens,
            quantization=one.quantization,
            fixed_price=price,
            dated_price=dated,
            timeouts=None if own is None else Timeouts(
                own.connect_s, own.first_token_s, own.idle_s
            ),
            health=health,
        )  # fmt: skip

    @property
    def names(self) -> frozenset[str]:
        """The names of all targets made so far."""
        return frozenset(self._health)

    def forget(self, name: str) -> None:
        """Drop the state of a target that no route has any more."""
        self._health.pop(name, None)

    def _of_catalog(self, provider: str, model: str) -> tuple[Price | None, DatedPrice | None]:
        """The second only where it changes on a day to come."""
        steps = self._prices.steps(provider, model, self._today)
        if len(steps) == 1:
            return steps[0][1], None
        midnight = dt.time(tzinfo=dt.UTC)
        from_s = [(dt.datetime.combine(day, midnight).timestamp(), one) for day, one in steps]
        return None, DatedPrice(from_s, self._wall_s)


def _share(most: int | None, workers: int) -> int | None:
    """Each worker's share; at least one, or a worker could serve nothing there."""
    return None if most is None else max(1, most // workers)


def _passes_priority(one: TargetSettings, provider: Provider) -> bool:
    if one.pass_priority and provider.side.name != "openai-chat":
        raise ConfigError(
            f"{one.model}: pass_priority: {provider.name} does not speak OpenAI's dialect, in "
            "which vLLM and headrace's own server accept a priority; remove it"
        )
    return one.pass_priority


def routes_of(
    settings: GatewaySettings,
    targets: Targets,
    traffic: TrafficSeries,
    on_taken_out: Callable[[TakenOut], None] | None = None,
) -> dict[str, Route]:
    """Routes by the name that clients use. on_taken_out: called for variants that fail too "
    "often."""
    found = {}
    for name, one in settings.models.items():
        plain = _route(name, one, settings, targets)
        found[name] = _with_traffic(plain, one, targets, traffic, on_taken_out)
    return {name: _standing_for(one, found, settings) for name, one in found.items()}


def _standing_for(route: Route, routes: Mapping[str, Route], settings: GatewaySettings) -> Route:
    """A model made of others, with all their targets."""
    if not route.stands_for:
        return route
    every: dict[str, Target] = {}
    left = list(route.stands_for)
    while left:
        name = left.pop(0)
        inner = routes.get(settings.aliases.get(name, name))
        if inner is not None:
            every |= {target.name: target for target in inner.targets}
            left += inner.stands_for
    return dataclasses.replace(route, targets=tuple(every.values()))


def _route(name: str, model: ModelSettings, settings: GatewaySettings, targets: Targets) -> Route:
    return Route(
        name=name,
        targets=tuple(targets.target(target) for target in model.targets),
        retries=model.retries or settings.retries,
        total_s=(model.timeouts or settings.timeouts).total_s,
        strategy=model.strategy,
        sticky=model.sticky,
        fallbacks=model.fallbacks,
        context_fallbacks=model.context_fallbacks,
        policy_fallbacks=model.policy_fallbacks,
        stands_for=made_of(model),
    )


def _with_traffic(
    route: Route,
    model: ModelSettings,
    targets: Targets,
    traffic: TrafficSeries,
    on_taken_out: Callable[[TakenOut], None] | None,
) -> Route:
    """The route with its hedging, variants and shadow."""
    name = route.name
    changes: dict[str, Any] = {}
    if model.hedge is not None:
        changes["hedging"] = Hedging(model.hedge, lambda what: traffic.hedges.add((name, what)))
    if model.shadow is not None:
        at = targets.target(model.shadow.target)
        changes["shadow"] = Shadow(model.shadow, at, lambda what: traffic.shadows.add((name, what)))
    if model.variants:

        def taken_out(told: TakenOut) -> None:
            traffic.taken_out.add((told.model, told.variant))
            if on_taken_out is not None:
                on_taken_out(told)

        sides = [
            Variant(side, one.weight, tuple(targets.target(each) for each in one.targets))
            for side, one in model.variants.items()
        ]
        variants = Variants(
            name,
            sides,
            model.assign_by,
            choosers=model.variant_choosers,
            rollback=model.rollback,
            on_taken_out=taken_out,
        )
        changes |= {"variants": variants, "targets": variants.targets}
    return dataclasses.replace(route, **changes) if changes else route


def unknown_routes(
    settings: GatewaySettings, targets: Targets, providers: Mapping[str, Provider]
) -> Callable[[str], Route | None]:
    """Routes of `provider/model` that no model of the file names, where that is allowed."""
    made: dict[str, Route] = {}
    of_file = targets.names

    def route(name: str) -> Route | None:
        if name in made:
            return made[name]
        provider, mark, model = name.partition("/")
        if not settings.pass_unknown_models or not mark or not model or provider not in providers:
            return None
        if len(made) >= _MOST_UNKNOWN:
            oldest = next(iter(made))
            del made[oldest]
            if oldest not in of_file:
                targets.forget(oldest)
        found = _route(
            name, ModelSettings(targets=(TargetSettings(model=name),)), settings, targets
        )
        made[name] = found
        return found

    return route
