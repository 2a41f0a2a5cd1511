"""Figures of a cost plan beside the price of tokens: of a request, of a month, of each volume."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.plan.cost.break_even import Fleet
from headrace.plan.quantity import Input, Quantity
from headrace.plan.speed.speed import Load

if TYPE_CHECKING:
    from headrace.plan.cost.cost_plan import BreakEvenPair, CostOption


def request_figure(way: CostOption, load: Load) -> Quantity:
    """What a request costs."""
    cost, low, high = way.cost, *way.cost.band
    share = way.usd_per_request / cost.value if cost.value else 0.0
    return Quantity(
        f"{cost.id}.request", f"{cost.name}, a request", way.usd_per_request, "USD/request", "P5",
        (
            _figure(cost),
            Input("prompt", load.prompt_tokens, "tokens", "--prompt", "given"),
            Input("output", load.output_tokens, "tokens", "--output", "given"),
        ),
        min(low * share, way.usd_per_request), max(high * share, way.usd_per_request),
    )  # fmt: skip


def fleet_figures(cost: Quantity, fleet: Fleet) -> tuple[Quantity, Quantity]:
    """What a month of a replica costs without work, and how many tokens it can make."""
    served = tuple(one for one in cost.inputs if one.source == "figure cost.served")
    rest = tuple(one for one in cost.inputs if one not in served and one.name != "utilisation")
    used = tuple(one for one in cost.inputs if one.name == "utilisation")
    return (
        Quantity(f"{cost.id}.month", f"{cost.name}, a month of a replica", fleet.usd_per_month,
                 "USD/month", "P6", rest),
        Quantity(f"{cost.id}.capacity", f"{cost.name}, tokens of a replica",
                 fleet.capacity_tokens_per_month, "tokens/month", "P7", (*served, *used)),
    )  # fmt: skip


def volume_figures(crossings: Iterable[BreakEvenPair]) -> tuple[Quantity, ...]:
    """What a month of each volume costs on hardware and by API."""
    found: dict[str, Quantity] = {}
    for one in crossings:
        hardware, api, fleet = one.hardware.cost, one.api.cost, one.hardware.fleet
        assert fleet is not None
        month, capacity = fleet_figures(hardware, fleet)
        for point in one.curve.points:
            volume = Input("volume", point.tokens_per_month, "tokens/month", "--volumes", "given")
            at = f"{point.tokens_per_month:.0f}"
            figures = (
                Quantity(
                    f"{hardware.id}.at.{at}",
                    f"{hardware.name}, a month",
                    point.fleet_usd_per_month,
                    "USD/month",
                    "P8",
                    (
                        volume,
                        _figure(month),
                        _figure(capacity),
                        Input(
                            "marginal",
                            fleet.marginal_usd_per_million_tokens,
                            "USD/1M tokens",
                            f"figure {hardware.id}",
                            "given",
                        ),
                    ),
                ),
                Quantity(
                    f"{hardware.id}.at.{at}.tokens",
                    f"{hardware.name}, 1M tokens of that volume",
                    point.fleet_usd_per_million_tokens,
                    "USD/1M tokens",
                    "P9",
                    (
                        volume,
                        Input(
                            "a month",
                            point.fleet_usd_per_month,
                            "USD/month",
                            f"figure {hardware.id}.at.{at}",
                            "given",
                        ),
                    ),
                ),
                Quantity(
                    f"{api.id}.at.{at}",
                    f"{api.name}, a month",
                    point.api_usd_per_month,
                    "USD/month",
                    "P10",
                    (volume, _figure(api)),
                ),
            )
            found.update({figure.id: figure for figure in figures})
    return tuple(found.values())


def _figure(figure: Quantity) -> Input:
    return Input(figure.name, figure.value, figure.unit, f"figure {figure.id}", "given")
