"""A cascade of two planned models: what a request costs and takes when few reach the large one.

Each model is priced as `cost_plan` prices it alone. Ways are paired as they are paid: own with own,
rented with rented, the cheapest API with the cheapest API. Hardware that serves both, and what
being half as busy costs, are not planned: utilisation is that given for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.errors import ConfigError
from headrace.plan.cost.cascade import Stage, cascade, most_escalated_share
from headrace.plan.cost.cost_plan import CostOption, CostPlan
from headrace.plan.cost.volume_figures import request_figure
from headrace.plan.model.renamed import under
from headrace.plan.quantity import Input, Quantity
from headrace.plan.validation import share

_SMALL, _LARGE = "small", "large"


@dataclass(frozen=True, kw_only=True)
class CascadeWay:
    """One way to pay both."""

    cost: Quantity
    """USD of a request, expected."""
    small_usd: float
    large_usd: float
    """Cost of the large model alone."""
    most_escalation: float
    """Share passed on up to which the cascade costs no more than that; 0: it never does."""


@dataclass(frozen=True, kw_only=True)
class CascadePlan:
    """The answer. latency, worst_latency: E2E in seconds on hardware; None where an API serves one
    of the two, whose times nobody states.
    """

    small: CostPlan
    large: CostPlan
    escalation: float
    ways: tuple[CascadeWay, ...]
    latency: Quantity | None
    worst_latency: Quantity | None
    notes: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[Quantity, ...]:
        """Those of the cascade; the models' own are in `small` and `large`."""
        times = [one for one in (self.latency, self.worst_latency) if one is not None]
        return (*(one.cost for one in self.ways), *times)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Every figure, those of the models under `small.` and `large.`, for `plan explain`."""
        return (
            *self.figures, *under(_SMALL, _priced(self.small)), *under(_LARGE, _priced(self.large))
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": f"{self.small.model}, then {self.large.model}",
            "hardware": self.large.hardware or self.small.hardware,
            "small": self.small.model,
            "large": self.large.model,
            "escalation": self.escalation,
            "ways": [
                {
                    "id": one.cost.id,
                    "name": one.cost.name,
                    "usd_per_request": one.cost.value,
                    "small_usd_per_request": one.small_usd,
                    "large_usd_per_request": one.large_usd,
                    "most_escalation": one.most_escalation,
                }
                for one in self.ways
            ],
            "quantities": [one.as_dict() for one in self.quantities],
            "notes": list(self.notes),
        }


def cascade_plan(small: CostPlan, large: CostPlan, escalation: float) -> CascadePlan:
    """`small` answers every request, `large` that share of them again.

    Raises ConfigError for a share that is none, and where the two have no way of paying in common.
    """
    share("escalation", escalation, "it is the share of requests that the small model passes on")
    pairs = [
        (name, ones, others)
        for name, ones, others in (
            ("own", _of(small, "cost.own"), _of(large, "cost.own")),
            ("rented", _of(small, "cost.rented"), _of(large, "cost.rented")),
            ("api", _of(small, "cost.api."), _of(large, "cost.api.")),
        )
        if ones and others
    ]
    if not pairs:
        raise ConfigError(
            f"{small.model} and {large.model} cannot be paid for in the same way: "
            f"{_ways(small)} and {_ways(large)}; give --rent or --price, or name models with "
            "APIs"
        )
    # Ways of an API come from the cheapest up.
    ways = tuple(_way(name, one[0], two[0], escalation) for name, one, two in pairs)
    latency, worst = _latency(small, large, escalation)
    notes: tuple[str, ...] = ()
    if latency is None:
        notes = ("no latency: none is stated for an API; measure it with `headrace bench load`",)
    return CascadePlan(
        small=small,
        large=large,
        escalation=escalation,
        ways=ways,
        latency=latency,
        worst_latency=worst,
        notes=notes,
    )


def _of(plan: CostPlan, id: str) -> list[CostOption]:
    return [one for one in plan.ways if one.cost.id.startswith(id)]


def _ways(plan: CostPlan) -> str:
    return ", ".join(one.cost.name for one in plan.ways) or "none"


def _way(name: str, small: CostOption, large: CostOption, escalation: float) -> CascadeWay:
    found = cascade(
        (
            Stage(
                name=small.cost.name,
                usd_per_request=small.usd_per_request,
                latency_s=0,
                escalated_share=escalation,
            ),
            Stage(name=large.cost.name, usd_per_request=large.usd_per_request, latency_s=0),
        )
    )
    spread = [
        small.usd_per_request * one / (small.cost.value or 1)
        + escalation * large.usd_per_request * two / (large.cost.value or 1)
        for one, two in zip(small.cost.band, large.cost.band, strict=True)
    ]
    named = small.cost.name
    if large.cost.name != small.cost.name:
        named = f"{small.cost.name}, then {large.cost.name}"
    figure = Quantity(
        id=f"cascade.{name}",
        name=named,
        value=found.usd_per_request,
        unit="USD/request",
        formula="P11",
        inputs=(
            _request(_SMALL, small),
            _request(_LARGE, large),
            _escalation(escalation),
        ),
        low=min(spread[0], found.usd_per_request),
        high=max(spread[1], found.usd_per_request),
    )
    most = 0.0
    if large.usd_per_request > 0:
        most = most_escalated_share(small.usd_per_request, large.usd_per_request)
    return CascadeWay(
        cost=figure,
        small_usd=small.usd_per_request,
        large_usd=large.usd_per_request,
        most_escalation=most,
    )


def _latency(
    small: CostPlan, large: CostPlan, escalation: float
) -> tuple[Quantity | None, Quantity | None]:
    first, second = (
        next((one for one in plan.speed_figures if one.id == "speed.e2e"), None)
        for plan in (small, large)
    )
    if first is None or second is None:
        return None, None
    inputs = (
        Input(f"E2E of {small.model}", first.value, "s", f"figure {_SMALL}.{first.id}", "given"),
        Input(f"E2E of {large.model}", second.value, "s", f"figure {_LARGE}.{second.id}", "given"),
    )
    found = [one + escalation * two for one, two in zip(first.band, second.band, strict=True)]
    expected = Quantity(
        "cascade.latency", "E2E without waiting, expected",
        first.value + escalation * second.value, "s",
        "P12", (*inputs, _escalation(escalation)), found[0], found[1],
    )  # fmt: skip
    ends = [one + two for one, two in zip(first.band, second.band, strict=True)]
    worst = Quantity(
        "cascade.worst-latency", "E2E without waiting, passed on", first.value + second.value, "s",
        "P12",
        (*inputs, _escalation(1.0)), ends[0], ends[1],
    )  # fmt: skip
    return expected, worst


def _request(which: str, way: CostOption) -> Input:
    return Input(
        f"{which}, {way.cost.name}", way.usd_per_request, "USD/request",
        f"figure {which}.{way.cost.id}.request", "given",
    )  # fmt: skip


def _priced(plan: CostPlan) -> tuple[Quantity, ...]:
    """Figures of one of the two that a cascade comes from: not its break-even."""
    served = () if plan.served is None else (plan.served,)
    return (
        *plan.speed_figures, *served, *(one.cost for one in plan.ways),
        *(request_figure(one, plan.load) for one in plan.ways),
    )  # fmt: skip


def _escalation(value: float) -> Input:
    return Input("escalation", value, "share", "--escalation", "given")
