"""GET /api/routes: models, their targets, how those do; POST /api/explain and the breakers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.errors import RequestError
from headrace.gateway.admin.call import Call
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.gatehouse import WorkerStanding
from headrace.gateway.admin.reply import json_reply
from headrace.gateway.routing.route import Route
from headrace.gateway.serving.composed.explanation import stages_of, way_of
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.model import ModelSettings, Strategy
from headrace.gateway.settings.traffic import AssignBy
from headrace.gateway.targets.health import State
from headrace.gateway.targets.target import Price, Target
from headrace.gateway.telemetry.standing import ProviderStanding, TargetStanding


class PriceView(msgspec.Struct, frozen=True, kw_only=True):
    """A price in nano-dollars (1e-9) per million tokens."""

    input: int
    output: int
    cache_read: Annotated[int | None, Meta(description="null: as input.")]
    cache_write: Annotated[int | None, Meta(description="null: as input.")]
    source: Annotated[str, Meta(description='Where the price is from, "" if unknown.')]
    as_of: Annotated[str, Meta(description='The date of the price, "" if unknown.')]
    above_tokens: Annotated[int | None, Meta(description="Longer prompts cost more.")]


class TargetView(msgspec.Struct, frozen=True, kw_only=True):
    """A target of a model."""

    target: str
    provider: str
    weight: float
    order: int
    usable: Annotated[
        bool, Meta(description="Whether a request would be let through, in at least one process.")
    ]
    breaker: Annotated[State, Meta(description="The worst state of all processes.")]
    taken_out: Annotated[bool, Meta(description="Whether an administrator took it out.")]
    for_s: Annotated[float | None, Meta(description="Time until it is usable.")]
    in_flight: int
    max_in_flight: int | None
    context_tokens: int | None
    quantization: str
    first_token_s: Annotated[
        float | None, Meta(description="A recent mean, null if nothing was measured.")
    ]
    tokens_per_s: Annotated[
        float | None, Meta(description="A recent mean, null if nothing was measured.")
    ]
    last_failure: str | None
    price: Annotated[PriceView | None, Meta(description="null if unknown.")]
    worker_count: Annotated[
        int, Meta(description="The number of processes in which it is as bad as `breaker` says.")
    ]


class VariantView(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of an A/B test."""

    name: str
    weight: Annotated[float, Meta(description="Relative to the other variants'.")]
    targets: tuple[str, ...]
    taken_out: Annotated[
        bool, Meta(description="Whether it failed too often, in at least one process.")
    ]


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that clients may request."""

    name: str
    aliases: Annotated[tuple[str, ...], Meta(description="Its other names.")]
    made_of: Annotated[
        str,
        Meta(
            description='How a model made of others chooses between them, "" for other models; '
            "its targets are all of theirs."
        ),
    ]
    variants: tuple[VariantView, ...]
    assign_by: Annotated[
        AssignBy | None, Meta(description="What a request is assigned to a variant by.")
    ]
    strategy: Annotated[
        Strategy,
        Meta(description="How one of the targets is chosen, in each variant if it has variants."),
    ]
    sticky: Literal["none", "session", "prefix"]
    fallbacks: tuple[str, ...]
    usable: bool
    targets: tuple[TargetView, ...]


class ProviderView(msgspec.Struct, frozen=True, kw_only=True):
    """A provider."""

    name: str
    keys: Annotated[int, Meta(description="Keys used in turn, 0 where none are needed.")]
    resting_keys: Annotated[int, Meta(description="In the process where most are resting.")]
    refused: Annotated[tuple[str, ...], Meta(description="Why, in the provider's words.")]
    connections: Annotated[int, Meta(description="Of all processes.")]
    local: bool


class Routes(msgspec.Struct, frozen=True, kw_only=True):
    """Models, providers and their state."""

    workers: Annotated[int, Meta(description="How many processes answer requests.")]
    in_flight: Annotated[int, Meta(description="Running requests in all of them.")]
    models: tuple[ModelView, ...]
    providers: tuple[ProviderView, ...]


class ExplainWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request as a client would send it: `model` has to be there; messages, max_tokens, provider
    and models count as they would. Nothing is sent."""

    body: Annotated[dict[str, Any], Meta(description="The request's JSON.")]
    key: Annotated[
        str | None,
        Meta(
            description="Id or label of the key to explain for: its models and data policy count, "
            "its "
            "limits and budgets do not."
        ),
    ] = None


class BreakerWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requested state of a target. open: it gets no requests until the file is reloaded.
    closed: it gets requests again, whatever failed before."""

    state: Literal["open", "closed"]


class BreakerSet(msgspec.Struct, frozen=True, kw_only=True):
    """A target as it was set."""

    target: str
    state: Literal["open", "closed"]


async def routes(call: Call) -> Response:
    """GET /api/routes: routes in their current state."""
    standings = await call.house.standings()
    settings = call.house.settings
    aliases = settings.aliases
    models = tuple(
        _model(
            route,
            settings.models[name],
            _in_order(route, settings, call.house.routes),
            tuple(one for one, of in aliases.items() if of == name),
            standings,
        )
        for name, route in call.house.routes.items()
    )
    local = {
        target.provider.name: target.provider.local
        for route in call.house.routes.values()
        for target in route.targets
    }
    names = list(
        dict.fromkeys(name for standing in standings for name in standing.standing.providers)
    )
    return json_reply(
        Routes(
            workers=len(standings),
            in_flight=sum(one.in_flight for one in standings),
            models=models,
            providers=tuple(
                _provider(
                    name,
                    [one.standing.providers[name] for one in standings
                     if name in one.standing.providers],
                    local=local.get(name, False),
                )
                for name in names
            ),
        )
    )  # fmt: skip


async def explain(call: Call) -> Response:
    """POST /api/explain: the targets that would be tried, in which order and why, and the "
    "others."""
    wanted = await call.body(ExplainWanted)
    model = wanted.body.get("model")
    if not isinstance(model, str) or not model:
        raise AdminError(400, "body.model: a name is required", "missing_model")
    try:
        found = await call.house.explain(model, msgspec.json.encode(wanted.body), wanted.key)
    except RequestError as error:
        status = _REFUSED.get(error.code or "", 400)
        raise AdminError(status, str(error), error.code or "bad_request") from error
    return json_reply(found)


async def set_breaker(call: Call) -> Response:
    """Take a target out by hand, or let it have requests again."""
    target = call.path("name")
    wanted = await call.body(BreakerWanted)
    if not await call.house.take_out(target, out=wanted.state == "open"):
        raise AdminError(404, f"no model of the file has a target {target!r}", "not_found")
    return json_reply(BreakerSet(target=target, state=wanted.state))


_REFUSED = {"model_not_found": 404, "key_not_found": 404, "model_not_allowed": 403}
_BADNESS: dict[State, int] = {"closed": 0, "probing": 1, "open": 2}


def _in_order(
    route: Route, settings: GatewaySettings, routes: Mapping[str, Route]
) -> tuple[Target, ...]:
    """Targets of stages in the order in which those are tried; of other models as the route has
    them."""
    names = [settings.aliases.get(one, one) for one in stages_of(settings.models[route.name])]
    stages = [routes[name] for name in names if name in routes]
    found = {target.name: target for stage in stages for target in stage.targets}
    return tuple(found.values()) or route.targets


def _model(
    route: Route,
    settings: ModelSettings,
    in_order: Iterable[Target],
    aliases: tuple[str, ...],
    standings: Iterable[WorkerStanding],
) -> ModelView:
    by_target: dict[str, list[TargetStanding]] = {}
    out: set[str] = set()
    for worker in standings:
        model = worker.standing.models.get(route.name)
        if model is None:
            continue
        out.update(model.variants_out)
        for one in model.targets:
            by_target.setdefault(one.target, []).append(one)
    targets = tuple(_target(one, by_target.get(one.name, [])) for one in in_order)
    return ModelView(
        name=route.name,
        aliases=aliases,
        made_of=way_of(settings),
        variants=() if route.variants is None else tuple(
            VariantView(
                name=side.name,
                weight=side.weight,
                targets=tuple(target.name for target in side.targets),
                taken_out=side.name in out,
            )
            for side in route.variants.sides
        ),
        assign_by=None if route.variants is None else settings.assign_by,
        strategy=route.strategy,
        sticky=route.sticky,
        fallbacks=route.fallbacks,
        usable=any(one.usable for one in targets),
        targets=targets,
    )  # fmt: skip


def _target(target: Target, told: list[TargetStanding]) -> TargetView:
    closed: State = "closed"
    worst = max((one.breaker for one in told), key=_BADNESS.__getitem__, default=closed)
    alike = [one for one in told if one.breaker == worst]
    usable = any(one.usable for one in told)
    waits = [one.for_s for one in told if one.for_s is not None]
    failures = [one.last_failure for one in (*alike, *told) if one.last_failure]
    return TargetView(
        target=target.name,
        provider=target.provider.name,
        weight=target.weight,
        order=target.order,
        usable=usable,
        breaker=worst,
        taken_out=any(one.taken_out for one in told),
        for_s=min(waits) if waits and not usable else None,
        in_flight=sum(one.in_flight for one in told),
        max_in_flight=target.max_in_flight,
        context_tokens=target.context_tokens,
        quantization=target.quantization,
        first_token_s=_mean(one.first_token_s for one in told),
        tokens_per_s=_mean(one.tokens_per_s for one in told),
        last_failure=failures[0] if failures else None,
        price=None if (price := target.price) is None else _price(price),
        worker_count=len(alike),
    )


def _price(price: Price) -> PriceView:
    return PriceView(
        input=price.input, output=price.output, cache_read=price.cache_read,
        cache_write=price.cache_write, source=price.source, as_of=price.as_of,
        above_tokens=price.above_tokens,
    )  # fmt: skip


def _provider(name: str, told: list[ProviderStanding], *, local: bool) -> ProviderView:
    return ProviderView(
        name=name,
        keys=max(one.keys for one in told),
        resting_keys=max(one.resting_keys for one in told),
        refused=tuple(dict.fromkeys(why for one in told for why in one.refused)),
        connections=sum(one.connections for one in told),
        local=local,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
