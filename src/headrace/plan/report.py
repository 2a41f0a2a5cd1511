"""Whether it fits, how fast and at what cost: three plans of one model under one load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.cost.cost_plan import ApiChoice, CostPlan, cost_plan
from headrace.plan.cost.cost_terms import CostTerms
from headrace.plan.memory.fit import Fit, fit
from headrace.plan.memory.memory import Load as MemoryLoad
from headrace.plan.quantity import Quantity
from headrace.plan.speed.replica import Replica
from headrace.plan.speed.speed import Load
from headrace.plan.speed.speed_plan import SpeedPlan, speed_plan


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """The answers. speed, cost: None where there is none, and `refused` says why."""

    fit: Fit
    speed: SpeedPlan | None
    cost: CostPlan | None
    refused: tuple[str, ...]

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Every figure once: plans of one load share those that they both have."""
        found = list(self.fit.quantities)
        if self.speed is not None:
            found += self.speed.quantities
        if self.cost is not None:
            found += self.cost.figures
        return tuple({one.id: one for one in found}.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON; figures stand once, beside the three plans."""
        plans: dict[str, Any] = {}
        for name, one in (("fit", self.fit), ("speed", self.speed), ("cost", self.cost)):
            plans[name] = None if one is None else one.as_dict()
            if plans[name] is not None:
                del plans[name]["quantities"]
        return {
            "model": self.fit.shape.name,
            "hardware": self.fit.memory.place.name,
            **plans,
            "quantities": [one.as_dict() for one in self.quantities],
            "refused": list(self.refused),
        }


def plan_report(
    catalog: Catalog, replica: Replica, load: Load, terms: CostTerms, apis: ApiChoice
) -> PlanReport:
    """All three of `replica` under `load`; raises ConfigError where memory itself is not known."""
    context = load.prompt_tokens + load.output_tokens
    step = replica.model.setup.prefill_chunk_tokens
    memory = MemoryLoad(context, load.batch, step)
    tensor = replica.model.setup.parallelism.tensor
    fits = fit(catalog, replica.shape, replica.place, replica.storage, memory, tensor)
    refused: list[str] = []
    speed: SpeedPlan | None = None
    cost: CostPlan | None = None
    try:
        speed = speed_plan(replica, load)
    except ConfigError as error:
        refused.append(f"no plan of speed: {error}")
    try:
        cost = cost_plan(catalog, replica.shape.name, replica, load, terms, apis)
    except ConfigError as error:
        refused.append(f"no plan of cost: {error}")
    return PlanReport(fit=fits, speed=speed, cost=cost, refused=tuple(refused))
