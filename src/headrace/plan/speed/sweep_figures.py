"""Figures of the table of a speed plan: of each batch and context, the ridge, the knee, drafts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.plan.quantity import Basis, Input, Quantity
from headrace.plan.speed.speed import SpeedModel, SpeedPoint

if TYPE_CHECKING:
    from headrace.plan.speed.speed_plan import Speculation

_OF_THE_LOAD = ("batch", "context")


def point_id(point: SpeedPoint) -> str:
    """Of a line of the table: "speed.c1024.b32", to which a figure's name is added."""
    return f"speed.c{point.context_tokens}.b{point.batch}"


def point_figures(
    model: SpeedModel, points: Iterable[SpeedPoint], tpot: Quantity
) -> tuple[Quantity, ...]:
    """TPOT, tokens/s of a user and of all at each point; tpot: of the load, for its inputs."""
    ends = [model.at(end) for end in ("best", "worst")]
    figures: list[Quantity] = []
    for one in points:
        best, worst = (end.decode_step(one.batch, one.context_tokens).seconds for end in ends)
        given = (
            Input("batch", one.batch, "requests", "given", "given"),
            Input("context", one.context_tokens, "tokens", "given", "given"),
        )
        name = point_id(one)
        rest = tuple(put for put in tpot.inputs if put.name not in _OF_THE_LOAD)
        at = replace(
            tpot, id=f"{name}.tpot", value=one.tpot_s, low=best, high=worst,
            name=f"TPOT at batch {one.batch:,}, context {one.context_tokens:,}",
            inputs=(*given, *rest),
        )  # fmt: skip
        time = Input(at.name, at.value, at.unit, f"figure {at.id}", "given")
        figures += [
            at,
            Quantity(f"{name}.user", "tokens/s a user", one.user_tokens_per_s, "tokens/s", "T6",
                     (time,), 1 / worst, 1 / best),
            Quantity(f"{name}.all", "tokens/s in all", one.system_tokens_per_s, "tokens/s", "T4",
                     (given[0], time), one.batch / worst, one.batch / best),
        ]  # fmt: skip
    return tuple(figures)


def limit_figures(model: SpeedModel, context_tokens: int, knee: int | None) -> tuple[Quantity, ...]:
    """The ridge of the roofline, and the batch from which decode is bound by compute if any."""
    roofline, setup = model.roofline, model.setup
    shares = (
        setup.efficiencies.bandwidth.as_input("bandwidth efficiency"),
        setup.efficiencies.compute.as_input("compute efficiency"),
    )
    used = setup.device.inputs_of(setup.compute_type)
    ends = [one.roofline.ridge for one in _apart(model)]
    ridge = Quantity(
        "speed.ridge", "ridge of the roofline", roofline.ridge, "operations/byte", "T7",
        (*used, *shares), min(*ends, roofline.ridge), max(*ends, roofline.ridge),
    )  # fmt: skip
    if knee is None:
        return (ridge,)
    batches = [
        found for one in _apart(model) if (found := one.knee_batch(context_tokens)) is not None
    ]
    return ridge, Quantity(
        "speed.knee", "knee: decode is bound by compute from batch", knee, "requests", "T8",
        (
            Input(ridge.name, ridge.value, ridge.unit, f"figure {ridge.id}", "given"),
            Input("context", context_tokens, "tokens", "given", "given"),
        ),
        min(*batches, knee) if batches else knee, max(*batches, knee) if batches else knee,
    )  # fmt: skip


def _apart(model: SpeedModel) -> tuple[SpeedModel, SpeedModel]:
    """With more bandwidth and less compute reached than planned with, and the other way round."""
    setup = model.setup
    best, worst = setup.efficiencies.at("best"), setup.efficiencies.at("worst")
    mixed = (
        replace(setup.efficiencies, bandwidth=best.bandwidth, compute=worst.compute),
        replace(setup.efficiencies, bandwidth=worst.bandwidth, compute=best.compute),
    )
    return (
        SpeedModel(replace(setup, efficiencies=mixed[0])),
        SpeedModel(replace(setup, efficiencies=mixed[1])),
    )


def speculation_figures(
    model: SpeedModel, context_tokens: int, found: Speculation, tpot: Quantity
) -> tuple[Quantity, ...]:
    """At the batch of the load: tokens of a step, what it costs, and the speedup by both."""
    draft, at = found.draft, found.at_batch
    ends = [at, *(draft.speedup(end, at.batch, context_tokens) for end in _apart(model))]
    # What was measured of drafts is off by about as much as the tests of the same calibration.
    is_measured = "measured" in (_basis(found.step_cost), _basis(found.draft_cost))
    error = 1 + (model.setup.efficiencies.rates_error if is_measured else 0.0)
    costs = [end.cost_ratio * off for end in ends for off in (1 / error, error)]
    gains = [end.speedup * off for end in ends for off in (1 / error, error)]
    costs.append(at.cost_ratio + found.most_unseen)
    gains.append(at.tokens_per_step / costs[-1])
    of_draft = Input("tokens of a draft", draft.tokens, "tokens", "--draft-tokens", "given")
    tokens = Quantity(
        "speed.speculation.tokens", "tokens of a step with drafts", at.tokens_per_step,
        "tokens/request", "S1",
        (
            Input("acceptance", draft.acceptance, "share", draft.source,
                  "given" if draft.source.startswith("--") else "measured"),
            of_draft,
        ),
    )  # fmt: skip
    cost = Quantity(
        "speed.speculation.cost", "cost of a step with drafts", at.cost_ratio, "x", "S2",
        (
            of_draft,
            Input("draft", draft.name, "", "--draft-model", "given"),
            Input("batch", at.batch, "requests", "given", "given"),
            Input("draft step / step", at.draft_ratio, "x", found.draft_cost,
                  _basis(found.draft_cost)),
            Input("step with drafts / step", at.verify_ratio, "x", found.step_cost,
                  _basis(found.step_cost)),
            Input(tpot.name, tpot.value, tpot.unit, f"figure {tpot.id}", "given"),
        ),
        min(costs), max(costs),
    )  # fmt: skip
    speedup = Quantity(
        "speed.speculation", "speedup by speculation", at.speedup, "x", "S3",
        tuple(
            Input(part.name, part.value, part.unit, f"figure {part.id}", "given")
            for part in (tokens, cost)
        ),
        min(gains), max(gains),
    )  # fmt: skip
    return speedup, tokens, cost


def _basis(said: str) -> Basis:
    return "measured" if said.startswith("measured") else "assumed"
