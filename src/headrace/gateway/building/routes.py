"""Routes and targets of the file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping

from headrace.catalog import Catalog
from headrace.gateway.building.prices import known_price, stated_price
from headrace.gateway.routing.route import Route
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.model import ModelSettings, TargetSettings
from headrace.gateway.targets.health import Health
from headrace.gateway.targets.provider import Provider
from headrace.gateway.targets.target import Target
from headrace.gateway.upstream.limits import Timeouts

# Names nobody configured are kept for a while; a client that invents names must not fill memory.
_MOST_UNKNOWN = 10_000


class Targets:
    """Makes targets, one for each place and model: routes that share one share its health."""

    def __init__(
        self,
        settings: GatewaySettings,
        providers: Mapping[str, Provider],
        catalog: Catalog,
        today: dt.date,
    ) -> None:
        self._settings = settings
        self._providers = providers
        self._catalog = catalog
        self._today = today
        self._health: dict[str, Health] = {}

    def target(self, one: TargetSettings) -> Target:
        """Of the file."""
        name, _, model = one.model.partition("/")
        provider = self._providers[name]
        price = None
        if one.price is not None:
            price = stated_price(one.price)
        elif not provider.local:
            kind = self._settings.providers[name].kind or name
            price = known_price(self._catalog, kind, model, self._today)
        own = one.timeouts
        health = self._health.get(one.model)
        if health is None:
            health = self._health[one.model] = Health(self._settings.breaker)
        return Target(
            name=one.model,
            provider=provider,
            model=model,
            weight=one.weight,
            order=one.order,
            most_in_flight=one.most_in_flight,
            context_tokens=one.context_tokens,
            quantization=one.quantization,
            price=price,
            timeouts=None if own is None else Timeouts(
                own.connect_s, own.first_token_s, own.idle_s
            ),
            health=health,
        )  # fmt: skip


def routes_of(settings: GatewaySettings, targets: Targets) -> dict[str, Route]:
    """By the name clients ask for."""
    return {name: _route(name, one, settings, targets) for name, one in settings.models.items()}


def _route(name: str, model: ModelSettings, settings: GatewaySettings, targets: Targets) -> Route:
    return Route(
        name=name,
        targets=tuple(targets.target(one) for one in model.targets),
        retries=model.retries or settings.retries,
        total_s=(model.timeouts or settings.timeouts).total_s,
        strategy=model.strategy,
        sticky=model.sticky,
        fallbacks=model.fallbacks,
        context_fallbacks=model.context_fallbacks,
        policy_fallbacks=model.policy_fallbacks,
    )


def unknown_routes(
    settings: GatewaySettings, targets: Targets, providers: Mapping[str, Provider]
) -> Callable[[str], Route | None]:
    """Routes of `provider/model` that no model of the file names, where that is allowed."""
    made: dict[str, Route] = {}

    def route(name: str) -> Route | None:
        if name in made:
            return made[name]
        provider, mark, model = name.partition("/")
        if not settings.pass_unknown_models or not mark or not model or provider not in providers:
            return None
        if len(made) >= _MOST_UNKNOWN:
            made.pop(next(iter(made)))
        found = _route(
            name, ModelSettings(targets=(TargetSettings(model=name),)), settings, targets
        )
        made[name] = found
        return found

    return route
