"""One way to serve what was asked for: a model on machines, or an API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headrace.plan.quantity import Quantity
from headrace.plan.recommendation.advice import Advice
from headrace.plan.recommendation.breach import Breach
from headrace.plan.recommendation.size import Quality

Paid = Literal["rented", "bought", "there already", "by token", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines of a self-hosted option."""

    hardware: str
    hardware_name: str
    devices: int
    """Devices of one replica."""
    tensor: int
    pipeline: int
    replicas: int
    batch: int
    """Requests a replica decodes together at most."""
    capacity_requests_per_s: float
    """Capacity of one replica."""
    utilization: float
    in_flight: float
    """Requests at once, of all replicas, by Little."""
    memory_bytes: float
    """Needed on a device."""
    usable_bytes: float
    usable_share: float
    """Share of the memory that a runtime uses."""

    @property
    def all_devices(self) -> int:
        """Of all replicas."""
        return self.devices * self.replicas


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option."""

    id: str
    """Unique in an answer."""
    name: str
    model: str
    model_name: str
    quality: Quality
    paid: Paid
    usd_per_month: Quantity | None
    quantization: str = ""
    runtime: str = ""
    """With `quantization`: ids of rows; "" of an API."""
    api: str = ""
    """The provider's id."""
    machines: Machines | None = None
    """None of an API."""
    ttft: Quantity | None = None
    tpot: Quantity | None = None
    e2e: Quantity | None = None
    """With `ttft` and `tpot`: s; None where not known, of machines until it is listed."""
    e2e_s: float | None = None
    """The middle of e2e, by which it is ranked."""
    marks: tuple[Breach, ...] = ()
    """Soft rules it breaks."""
    advice: tuple[Advice, ...] = ()
    """What the decision trees say of it."""
    reasons: tuple[str, ...] = ()
    sources: tuple[Quantity, ...] = ()
    """Figures that those come from."""

    @property
    def all_figures(self) -> tuple[Quantity, ...]:
        """Every figure once, by which `plan explain` finds them."""
        return tuple({one.id: one for one in (*self.figures, *self.sources)}.values())

    @property
    def figures(self) -> tuple[Quantity, ...]:
        """TTFT, TPOT, E2E and the month, as far as they are known."""
        found = (self.ttft, self.tpot, self.e2e, self.usd_per_month)
        return tuple(one for one in found if one is not None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        machines = None
        if self.machines is not None:
            one = self.machines
            machines = {
                "hardware": one.hardware, "devices_of_a_replica": one.devices,
                "tensor_parallel": one.tensor, "pipeline_parallel": one.pipeline,
                "replicas": one.replicas, "devices": one.all_devices, "batch": one.batch,
                "capacity_requests_per_s": one.capacity_requests_per_s,
                "utilization": one.utilization, "in_flight": one.in_flight,
                "memory_bytes": round(one.memory_bytes), "usable_bytes": round(one.usable_bytes),
            }  # fmt: skip
        return {
            "id": self.id, "name": self.name, "model": self.model,
            "quantization": self.quantization or None, "runtime": self.runtime or None,
            "api": self.api or None, "paid": self.paid, "machines": machines,
            "quality": self.quality.as_dict(),
            "quantities": [one.as_dict() for one in self.figures],
            "marks": [{"rule": one.rule, "text": one.text} for one in self.marks],
            "advice": [one.as_dict() for one in self.advice],
            "reasons": list(self.reasons),
        }  # fmt: skip
