"""At what cost, answered: own, rented and by API side by side, and from which volume each pays.

What cannot be priced is not left out silently: `missing` says of each way what is not known.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.catalog import Catalog
from headrace.catalog.rows.price import Price
from headrace.errors import ConfigError
from headrace.plan.cost.break_even import BreakEven, Fleet, break_even
from headrace.plan.cost.cost import (
    HOURS_PER_MONTH,
    ApiUse,
    TokenCost,
    api_cost,
    own_cost,
    rented_cost,
)
from headrace.plan.cost.cost_figures import (
    api_figure,
    break_even_figures,
    measured_served_figure,
    own_figure,
    rented_figure,
    served_figure,
)
from headrace.plan.cost.cost_terms import CostTerms, owned, rent_of
from headrace.plan.cost.volume_figures import fleet_figures, request_figure, volume_figures
from headrace.plan.parallel_notes import parallel_notes
from headrace.plan.quantity import Quantity
from headrace.plan.speed.replica import Replica
from headrace.plan.speed.speed import Load
from headrace.plan.speed.speed_figures import speed_figures
from headrace.plan.validation import above_zero

# From 1 M to 1 T tokens a month, four a decade.
CURVE_TOKENS_PER_MONTH = tuple(round(10 ** (6 + step / 4)) for step in range(25))


@dataclass(frozen=True, kw_only=True)
class CostOption:
    """One way to have tokens made. fleet: None of an API, which has no capacity of its own."""

    cost: Quantity
    usd_per_request: float
    parts: Mapping[str, float]
    source: str
    as_of: str
    fleet: Fleet | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BreakEvenPair:
    """Hardware against an API."""

    hardware: CostOption
    api: CostOption
    curve: BreakEven
    figures: tuple[Quantity, ...]


@dataclass(frozen=True, kw_only=True)
class CostPlan:
    """The answer."""

    model: str
    load: Load
    hardware: str | None
    devices: int
    served: Quantity | None
    speed_figures: tuple[Quantity, ...]
    ways: tuple[CostOption, ...]
    """Hardware first, then APIs from the cheapest."""
    crossings: tuple[BreakEvenPair, ...]
    """Each of the former with the cheapest of the latter."""
    missing: tuple[str, ...]
    """What has no price, and why."""
    notes: tuple[str, ...]

    @property
    def figures(self) -> tuple[Quantity, ...]:
        """Every figure, by which `plan explain` finds them."""
        served = () if self.served is None else (self.served,)
        meetings = [figure for one in self.crossings for figure in one.figures]
        owned = [
            figure
            for one in self.ways
            if one.fleet is not None
            for figure in fleet_figures(one.cost, one.fleet)
        ]
        return (
            *self.speed_figures, *served,
            *(one.cost for one in self.ways),
            *(request_figure(one, self.load) for one in self.ways),
            *owned, *meetings, *volume_figures(self.crossings),
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.model,
            "hardware": self.hardware,
            "devices": self.devices,
            "load": asdict(self.load),
            "ways": [
                {
                    "id": one.cost.id,
                    "name": one.cost.name,
                    "usd_per_million_tokens": one.cost.value,
                    "usd_per_request": one.usd_per_request,
                    "parts": dict(one.parts),
                    "source": one.source,
                    "as_of": one.as_of,
                    "fleet": None if one.fleet is None else asdict(one.fleet),
                    "notes": list(one.notes),
                }
                for one in self.ways
            ],
            "break_even": [
                {
                    "hardware": one.hardware.cost.id,
                    "api": one.api.cost.id,
                    "first_tokens_per_month": one.curve.first_tokens_per_month,
                    "always_tokens_per_month": one.curve.always_tokens_per_month,
                    "curve": [asdict(point) for point in one.curve.points],
                }
                for one in self.crossings
            ],
            "quantities": [one.as_dict() for one in self.figures],
            "missing": list(self.missing),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class ApiChoice:
    """The API prices to look up."""

    model: str
    on: dt.date
    providers: tuple[str, ...] = ()
    """Providers to compare; empty: all that have a price on that day."""
    batch: bool = False


def cost_plan(
    catalog: Catalog,
    name: str,
    replica: Replica | None,
    load: Load,
    terms: CostTerms,
    apis: ApiChoice,
    *,
    tokens_per_s: float | None = None,
    volumes: Iterable[float] = CURVE_TOKENS_PER_MONTH,
) -> CostPlan:
    """Costs of the model called `name`; replica: None where only an API has it.

    tokens_per_s: served by a replica, prompt and output together, in place of what is predicted.
    Raises ConfigError for what is impossible, CatalogError for a provider without a price.
    """
    ways: list[CostOption] = []
    missing: list[str] = []
    notes: tuple[str, ...] = ()
    served: Quantity | None = None
    of_speed: tuple[Quantity, ...] = ()
    if replica is not None:
        notes += replica.check_fits(load.prompt_tokens + load.output_tokens, load.batch)
        notes += parallel_notes(replica)
        if tokens_per_s is None:
            speed = replica.model.speed(load)
            served = served_figure(speed)
            of_speed = (replica.weights, *speed_figures(replica.model, speed, replica.weights))
            notes += speed.assumptions
        else:
            above_zero("tokens_per_s", tokens_per_s, "it is the measured throughput of the replica")
            served = measured_served_figure(tokens_per_s)
        for priced in (_own, _rented):
            try:
                ways.append(priced(catalog, replica, load, terms, served))
            except ConfigError as error:
                if (priced is _own and terms.price_usd is not None) or (
                    priced is _rented
                    and (terms.rent_usd_per_hour is not None or terms.vendor is not None)
                ):
                    raise
                missing.append(f"{'own' if priced is _own else 'rented'}: {error}")
    sold, without = _apis(catalog, load, apis)
    missing += without
    if not ways and not sold:
        raise ConfigError(f"no price is known: {'; '.join(missing)}")
    asked = tuple(volumes)
    crossings = tuple(
        _crossing(way, sold[0], asked) for way in ways if sold and sold[0].cost.value > 0
    )
    return CostPlan(
        model=name,
        load=load,
        hardware=None if replica is None else replica.model.setup.device.name,
        devices=0 if replica is None else replica.place.devices,
        served=served,
        speed_figures=of_speed,
        ways=(*ways, *sold),
        crossings=crossings,
        missing=tuple(missing),
        notes=notes,
    )


def _own(
    catalog: Catalog, replica: Replica, load: Load, terms: CostTerms, served: Quantity
) -> CostOption:
    row = None if replica.hardware is None else catalog.hardware[replica.hardware]
    bought = owned(catalog, row, terms, replica.place.devices)
    slow, fast = served.band
    best, cost, worst = (
        own_cost(hardware, rate, terms.utilization)
        for hardware, rate in (
            (bought.best, fast), (bought.value, served.value), (bought.worst, slow)
        )
    )  # fmt: skip
    # What electricity work takes beyond idling is paid by the token, the rest by the month.
    idle, busy = bought.value.hour(0.0), bought.value.hour(1.0)
    marginal = (busy.energy_usd_per_hour - idle.energy_usd_per_hour) / (served.value * 3600) * 1e6
    fleet = Fleet(
        usd_per_month=idle.usd_per_month,
        capacity_tokens_per_month=cost.tokens_per_month,
        marginal_usd_per_million_tokens=marginal,
    )
    figure = own_figure((best, cost, worst), bought, terms, served)
    return _of_hardware(figure, cost, load, fleet)


def _rented(
    catalog: Catalog, replica: Replica, load: Load, terms: CostTerms, served: Quantity
) -> CostOption:
    row = None if replica.hardware is None else catalog.hardware[replica.hardware]
    rent = rent_of(row, terms)
    devices = replica.place.devices
    slow, fast = served.band
    best, cost, worst = (
        rented_cost(usd * devices, rate, terms.utilization, terms.rent_overhead)
        for usd, rate in ((rent.low, fast), (rent.value, served.value), (rent.high, slow))
    )
    fleet = Fleet(
        usd_per_month=rent.value * devices * terms.rent_overhead * HOURS_PER_MONTH,
        capacity_tokens_per_month=cost.tokens_per_month,
    )
    figure = rented_figure((best, cost, worst), rent, devices, terms, served)
    return _of_hardware(figure, cost, load, fleet)


def _of_hardware(figure: Quantity, cost: TokenCost, load: Load, fleet: Fleet) -> CostOption:
    first = figure.inputs[0]
    tokens = load.prompt_tokens + load.output_tokens
    return CostOption(
        cost=figure,
        usd_per_request=cost.usd_per_million_tokens * tokens / 1e6,
        parts={
            "hardware_usd_per_million_tokens": cost.hardware_usd_per_million_tokens,
            "energy_usd_per_million_tokens": cost.energy_usd_per_million_tokens,
            "operations_usd_per_million_tokens": cost.operations_usd_per_million_tokens,
        },
        source=first.source,
        as_of=first.as_of,
        fleet=fleet,
    )


def _apis(catalog: Catalog, load: Load, apis: ApiChoice) -> tuple[list[CostOption], list[str]]:
    """From the cheapest up, and what has no price."""
    use = ApiUse(
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        cache_read_share=load.cached_prompt_share,
        batch=apis.batch,
    )
    found: list[CostOption] = []
    missing: list[str] = []
    prices = _prices(catalog, apis)
    if not prices:
        missing.append(
            f"API: the catalog has no price for {apis.model} on {apis.on}: name another model "
            "with --api-model, or import prices (`headrace catalog import`)"
        )
    for price in prices:
        provider = catalog.providers.find(price.provider)
        seller = price.provider if provider is None else provider.name
        try:
            cost = api_cost(price, use)
        except ConfigError as error:
            missing.append(f"API ({seller}): {error}")
            continue
        fact = price.facts["input_usd_per_million_tokens"]
        found.append(
            CostOption(
                cost=api_figure(price, seller, cost, use),
                usd_per_request=cost.usd_per_request,
                parts={
                    "effective_input_usd_per_million_tokens": (
                        cost.effective_input_usd_per_million_tokens
                    ),
                    "output_usd_per_million_tokens": cost.output_usd_per_million_tokens,
                },
                source=fact.source,
                as_of=fact.as_of.isoformat(),
                notes=cost.assumptions,
            )
        )
    return sorted(found, key=lambda way: way.cost.value), missing


def _prices(catalog: Catalog, apis: ApiChoice) -> list[Price]:
    sellers = apis.providers or sorted(
        {
            price.provider
            for price in catalog.prices_of(apis.model)
            if price.in_use and price.holds_on(apis.on)
        }
    )
    return [catalog.price(apis.model, seller, apis.on) for seller in sellers]


def _crossing(way: CostOption, api: CostOption, volumes: Iterable[float]) -> BreakEvenPair:
    assert way.fleet is not None
    curve = break_even(way.fleet, api.cost.value, volumes)
    return BreakEvenPair(
        hardware=way,
        api=api,
        curve=curve,
        figures=break_even_figures(way.cost, api.cost, curve, way.fleet.usd_per_month),
    )
