"""Predictions: what fits, how fast, at what cost; each figure with formula, inputs and error.

What people use from Python is named here and imported on first use, so that `import headrace.plan`
stays cheap: `from headrace.plan import Catalog, place_of, plan_fit, shape_of_catalog`.
"""

from __future__ import annotations

from importlib import import_module

# Not from typing: that takes 10 ms.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headrace.catalog import Catalog
    from headrace.plan.cost.cost_plan import ApiChoice, CostPlan
    from headrace.plan.cost.cost_plan import cost_plan as plan_cost
    from headrace.plan.cost.cost_terms import CostTerms
    from headrace.plan.explanation import Derivation, explain
    from headrace.plan.machine.hardware_memory import DeviceMemory, place_of
    from headrace.plan.memory.fit import Fit
    from headrace.plan.memory.fit import fit as plan_fit
    from headrace.plan.memory.kv_cache import kv_kind
    from headrace.plan.memory.memory import Load as MemoryLoad
    from headrace.plan.memory.memory import Storage
    from headrace.plan.model.find_model import shape_named
    from headrace.plan.model.model_shape import ModelShape, shape_of_catalog
    from headrace.plan.page import plan_page
    from headrace.plan.quantity import Input, Quantity
    from headrace.plan.report import PlanReport, plan_report
    from headrace.plan.saved_plan import PlanMetadata, SavedPlan, read_plan
    from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
    from headrace.plan.speed.speed import Load
    from headrace.plan.speed.speed_plan import Draft, SpeedPlan
    from headrace.plan.speed.speed_plan import speed_plan as plan_speed

# Name -> the module that has it, and its name there where that is another. None has the name of a
# module of this package, which would take its place once it is imported.
_WHERE = {
    "ApiChoice": "headrace.plan.cost.cost_plan",
    "Catalog": "headrace.catalog",
    "CostPlan": "headrace.plan.cost.cost_plan",
    "CostTerms": "headrace.plan.cost.cost_terms",
    "Derivation": "headrace.plan.explanation",
    "DeviceMemory": "headrace.plan.machine.hardware_memory",
    "Draft": "headrace.plan.speed.speed_plan",
    "Fit": "headrace.plan.memory.fit",
    "Input": "headrace.plan.quantity",
    "Load": "headrace.plan.speed.speed",
    "MemoryLoad": "headrace.plan.memory.memory:Load",
    "ModelShape": "headrace.plan.model.model_shape",
    "PlanMetadata": "headrace.plan.saved_plan",
    "PlanReport": "headrace.plan.report",
    "Quantity": "headrace.plan.quantity",
    "Replica": "headrace.plan.speed.replica",
    "ReplicaChoice": "headrace.plan.speed.replica",
    "SavedPlan": "headrace.plan.saved_plan",
    "SpeedPlan": "headrace.plan.speed.speed_plan",
    "Storage": "headrace.plan.memory.memory",
    "explain": "headrace.plan.explanation",
    "kv_kind": "headrace.plan.memory.kv_cache",
    "place_of": "headrace.plan.machine.hardware_memory",
    "plan_cost": "headrace.plan.cost.cost_plan:cost_plan",
    "plan_fit": "headrace.plan.memory.fit:fit",
    "plan_page": "headrace.plan.page",
    "plan_report": "headrace.plan.report",
    "plan_speed": "headrace.plan.speed.speed_plan:speed_plan",
    "read_plan": "headrace.plan.saved_plan",
    "replica_of": "headrace.plan.speed.replica",
    "shape_named": "headrace.plan.model.find_model",
    "shape_of_catalog": "headrace.plan.model.model_shape",
}

__all__ = [
    "ApiChoice",
    "Catalog",
    "CostPlan",
    "CostTerms",
    "Derivation",
    "DeviceMemory",
    "Draft",
    "Fit",
    "Input",
    "Load",
    "MemoryLoad",
    "ModelShape",
    "PlanMetadata",
    "PlanReport",
    "Quantity",
    "Replica",
    "ReplicaChoice",
    "SavedPlan",
    "SpeedPlan",
    "Storage",
    "explain",
    "kv_kind",
    "place_of",
    "plan_cost",
    "plan_fit",
    "plan_page",
    "plan_report",
    "plan_speed",
    "read_plan",
    "replica_of",
    "shape_named",
    "shape_of_catalog",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'headrace.plan' has no attribute {name!r}")
    module, _, own = _WHERE[name].partition(":")
    return getattr(import_module(module), own or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
