"""TTFT, TPOT and E2E under load, as figures with their inputs and bands."""

from __future__ import annotations

from typing import NamedTuple

from headrace.plan.model.renamed import figure_input, under
from headrace.plan.quantity import Input, Quantity
from headrace.plan.recommendation.capacity import Latency, latency_at, load_of
from headrace.plan.recommendation.question import Question
from headrace.plan.speed.replica import Replica
from headrace.plan.speed.speed_figures import speed_figures


class LatencyFigures(NamedTuple):
    """Figures under load. alone: weights, TTFT, TPOT and more without other requests, of `plan
    speed`.
    """

    ttft: Quantity
    tpot: Quantity
    e2e: Quantity
    alone: tuple[Quantity, ...]


def latency_figures(
    id: str, replica: Replica, question: Question, rate: float, latency: Latency
) -> LatencyFigures:
    """Of a replica that gets `rate` requests/s, whose latency is `latency` by middle efficiencies.

    The band is that of the efficiencies; a queue that is longer than planned is not in it.
    """
    model = replica.model
    best, worst = (latency_at(model.at(end), question, rate) for end in ("best", "worst"))
    speed = model.speed(load_of(question, latency.batch))
    alone = under(id, (replica.weights, *speed_figures(model, speed, replica.weights)))
    prefill, step = (next(one for one in alone if one.id.endswith(end))
                     for end in (".speed.ttft", ".speed.tpot"))  # fmt: skip
    load = (
        Input("rate of a replica", rate, "requests/s", "--rate / replicas", "given"),
        Input("share of prefill", latency.prefill_share, "share", "rate of a replica · prefill",
              "given"),
        Input("batch", latency.batch, "requests", "rate of a replica · E2E (Little)", "given"),
    )  # fmt: skip

    def figure(
        name: str, formula: str, ends: tuple[float, float, float], inputs: tuple[Input, ...]
    ) -> Quantity:
        low, value, high = ends
        least = "" if name == "TPOT" else ", at least"  # beside prefill, waiting is not planned
        return Quantity(
            f"{id}.{name.lower()}", f"{name} under load{least}", value, "s", formula, inputs,
            min(low, value), max(high, value),
        )  # fmt: skip

    ttft = figure("TTFT", "O3", (best.ttft_s, latency.ttft_s, worst.ttft_s),
                  (figure_input(prefill, "prefill"), *load[:2]))  # fmt: skip
    tpot = figure("TPOT", "O4", (best.tpot_s, latency.tpot_s, worst.tpot_s),
                  (figure_input(step, "TPOT of the batch"), *load))  # fmt: skip
    output = Input("output", question.output_tokens, "tokens", "--output", "given")
    e2e = figure("E2E", "F3", (best.e2e_s, latency.e2e_s, worst.e2e_s),
                 (figure_input(ttft), figure_input(tpot), output))  # fmt: skip
    return LatencyFigures(ttft, tpot, e2e, alone)
