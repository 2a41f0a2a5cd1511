"""What stands behind an option: capacity, replicas, requests in flight, memory and size."""

from __future__ import annotations

import math
from dataclasses import replace

from headrace.catalog.fact import Confidence
from headrace.catalog.rows import Model
from headrace.plan.model.renamed import figure_input, under
from headrace.plan.quantity import Input, Quantity, input_of_fact
from headrace.plan.recommendation.capacity import rate_of
from headrace.plan.recommendation.option import Machines
from headrace.plan.recommendation.question import Question
from headrace.plan.speed.replica import Replica


def capacity_figures(
    id: str, replica: Replica, question: Question, machines: Machines, e2e: Quantity
) -> tuple[Quantity, Quantity, Quantity]:
    """Requests/s of a replica, how many replicas, and requests in flight over all of them.

    The band of the replicas is how many others the ends of the capacity would take.
    """
    ends = [rate_of(replica.model.at(end), question, machines.batch) for end in ("worst", "best")]
    value = machines.capacity_requests_per_s
    limits = ", ".join(one.text for one in question.slo) or "none"
    capacity = Quantity(
        f"{id}.capacity", "capacity of a replica", value, "requests/s", "O1",
        (
            Input("batch", machines.batch, "requests", "the largest that fits and keeps the SLO",
                  "given"),
            Input("SLO", limits, "", "--slo", "given"),
            Input("prompt", question.prompt_tokens, "tokens", "--prompt", "given"),
            Input("output", question.output_tokens, "tokens", "--output", "given"),
        ),
        min(*ends, value), max(*ends, value),
    )  # fmt: skip

    def many(requests_per_s: float) -> int:
        return max(1, math.ceil(question.rate / (requests_per_s * question.headroom)))

    rate = Input("rate", question.rate, "requests/s", "--rate", "given")
    count = Quantity(
        f"{id}.replicas", "replicas", machines.replicas, "", "O2",
        (rate, figure_input(capacity),
         Input("utilisation", question.headroom, "share", "--headroom or rule-headroom", "given")),
        min(many(capacity.band[1]), machines.replicas),
        max(many(capacity.band[0]), machines.replicas),
    )  # fmt: skip
    flight = Quantity(
        f"{id}.in-flight", "requests in flight", machines.in_flight, "requests", "O2",
        (rate, figure_input(e2e)),
        min(question.rate * e2e.band[0], machines.in_flight),
        max(question.rate * e2e.band[1], machines.in_flight),
    )  # fmt: skip
    return capacity, count, flight


def month_by_replicas(month: Quantity, machines: Machines, replicas: Quantity) -> Quantity:
    """The same month, its devices told as replicas and devices of each."""
    inputs = tuple(one for one in month.inputs if one.name != "devices")
    each = Input("devices of a replica", machines.devices, "",
        "the fewest that suffice, or the next",
                 "given")  # fmt: skip
    return replace(month, inputs=(*inputs, figure_input(replicas), each))


def memory_figures(
    id: str, replica: Replica, question: Question, batch: int
) -> tuple[Quantity, ...]:
    """Of a device with `batch` requests: what fills it, what is needed and what is usable."""
    plan = replica.memory(question.context_tokens, batch)
    parts = (plan.all_weights, *plan.components, plan.needed, plan.usable)
    return under(id, {one.id: one for one in parts}.values())


def size_figure(id: str, row: Model) -> Quantity | None:
    """The proxy of quality of a model; None where its maker publishes no size."""
    total, active = row.total_parameters, row.active_parameters
    if total is None:
        return None
    names = ("total_parameters", *(("active_parameters",) if active else ()))
    return Quantity(
        f"{id}.size", "size, a proxy of quality", math.sqrt(total * (active or total)),
        "parameters", "O6", tuple(_parameters(row, name) for name in names),
    )  # fmt: skip


def _parameters(row: Model, field: str) -> Input:
    fact = row.facts[field]
    if fact.confidence is not Confidence.CLAIM:
        return input_of_fact(row, field, fact)
    value = fact.value if isinstance(fact.value, int | float) else str(fact.value)
    return Input(f"{row.id}.{field}", value, fact.unit, fact.source, "assumed",
                 fact.as_of.isoformat(), fact.disputed_by, "a claim")  # fmt: skip
