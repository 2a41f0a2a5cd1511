"""TTFT, TPOT and E2E under load, as figures with their inputs and bands."""

from __future__ import annotations

from headrace.plan.quantity import Input, Quantity
from headrace.plan.recommendation.capacity import Latency, latency_at, load_of
from headrace.plan.recommendation.question import Question
from headrace.plan.replica import Replica
from headrace.plan.speed_figures import speed_figures


def latency_figures(
    id: str, replica: Replica, question: Question, rate: float, latency: Latency
) -> tuple[Quantity, Quantity, Quantity]:
    """Of a replica that gets `rate` requests/s, whose latency is `latency` by middle efficiencies.

    The band is that of the efficiencies; a queue that is longer than planned is not in it.
    """
    model = replica.model
    best, worst = (latency_at(model.at(end), question, rate) for end in ("best", "worst"))
    alone = speed_figures(model, model.speed(load_of(question, latency.batch)), replica.weights)
    load = (
        Input("rate of a replica", rate, "requests/s", "--rate", "given"),
        Input("share of prefill", latency.prefill_share, "share", "rate · prefill", "given"),
        Input("batch", latency.batch, "requests", "rate · E2E (Little)", "given"),
    )
    inputs = {one.id: one.inputs for one in alone}

    def figure(name: str, formula: str, ends: tuple[float, float, float], of: str) -> Quantity:
        low, value, high = ends
        return Quantity(
            f"{id}.{name.lower()}", f"{name} under load", value, "s", formula,
            (*load, *inputs.get(of, ())), min(low, value), max(high, value),
        )  # fmt: skip

    return (
        figure("TTFT", "O3", (best.ttft_s, latency.ttft_s, worst.ttft_s), "speed.ttft"),
        figure("TPOT", "O4", (best.tpot_s, latency.tpot_s, worst.tpot_s), "speed.tpot"),
        figure("E2E", "F3", (best.e2e_s, latency.e2e_s, worst.e2e_s), "speed.e2e"),
    )
