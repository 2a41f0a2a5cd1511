"""How fast, answered: the load that was asked for, the knee, a sweep, and what drafts gain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from headrace.plan.parallel_notes import parallel_notes
from headrace.plan.quantity import Quantity
from headrace.plan.speed.disaggregation import DisaggregatedSpeed
from headrace.plan.speed.replica import Replica
from headrace.plan.speed.speculation import BatchSpeedup, batch_speedup, paying_batches
from headrace.plan.speed.speed import Load, Speed, SpeedModel, SpeedPoint
from headrace.plan.speed.speed_figures import speed_figures
from headrace.plan.speed.sweep_figures import limit_figures, point_figures, speculation_figures

LARGEST_SWEPT_BATCH = 256
MOST_OF_A_PLACE = 0.12
"""Of a step on a CPU, what a further place in it took at most, of headrace-base and a 0.6B shape in
five kinds of weights (benchmarks/figures/speculation.md, what further rows of a step cost):
unpacking weights and what lies between operations, which no roofline has."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Drafts of a speculation. model: None where they take no time, as n-grams and heads do."""

    name: str
    acceptance: float
    tokens: int
    model: SpeedModel | None = None
    source: str = "--draft-acceptance"
    """Of the acceptance: the option, or the file that it was measured in."""
    passes: str | None = None
    """The name under which its passes were measured beside the model; None if they were not."""

    def step_s(self, beside: SpeedModel, batch: int, context_tokens: int) -> float:
        """Of drafting a token of each of `batch` requests of the model `beside`."""
        ratio = self.measured_ratio(beside, batch)
        if ratio is not None:
            measured = beside.setup.measured_steps
            assert measured is not None, "there is no ratio without"
            return ratio * beside.decode_step(batch, measured.context_tokens).seconds
        return 0.0 if self.model is None else self.model.decode_step(batch, context_tokens).seconds

    def measured_ratio(self, beside: SpeedModel, batch: int) -> float | None:
        """A pass over a step of `beside`, where both were measured together."""
        measured = beside.setup.measured_steps
        if measured is None or self.passes is None:
            return None
        return measured.pass_ratio(self.passes, batch)

    def speedup(self, model: SpeedModel, batch: int, context_tokens: int) -> BatchSpeedup:
        """What such drafts gain beside a model."""
        return batch_speedup(
            self.acceptance,
            self.tokens,
            batch,
            lambda batch, tokens: model.decode_step(batch, context_tokens, tokens).seconds,
            lambda batch, _: self.step_s(model, batch, context_tokens),
        )


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """The gain of speculation at the requested batch, and the batch from which there is none."""

    draft: Draft
    at_batch: BatchSpeedup
    stops_at_batch: int | None
    """None if every batch up to `largest_batch` gains."""
    largest_batch: int
    step_cost: str
    """Where the time of a step with drafts comes from."""
    draft_cost: str
    """The same of making drafts."""
    most_unseen: float = 0.0
    """Of a step, what the places of drafts may take beyond what is predicted."""


@dataclass(frozen=True, kw_only=True)
class SpeedPlan:
    """The answer."""

    replica: Replica
    speed: Speed
    figures: tuple[Quantity, ...]
    knee_batch: int | None
    """Batch from which a decode step is bound by compute; None: from none."""
    points: tuple[SpeedPoint, ...]
    """Decoding by context and batch."""
    most_batch: dict[int, int]
    """Maximum batch that fits in memory, by context."""
    most_at_load: int
    """Maximum batch that fits halfway through the answers of the load."""
    speculation: Speculation | None
    notes: tuple[str, ...]
    apart: DisaggregatedSpeed | None = None

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Every figure, those of the table too, by which `plan explain` finds them."""
        model, tpot = self.replica.model, next(o for o in self.figures if o.id == "speed.tpot")
        context, drafts = self.speed.load.middle_context_tokens, self.speculation
        gains = () if drafts is None else speculation_figures(model, context, drafts, tpot)
        return (
            *self.figures,
            *limit_figures(model, context, self.knee_batch),
            *gains,
            *(() if self.apart is None else self.apart.figures),
            *point_figures(model, self.points, tpot),
        )

    @property
    def knee_fits(self) -> bool:
        """Whether there is a knee, and that many requests fit."""
        return self.knee_batch is not None and self.knee_batch <= self.most_at_load

    def fits(self, point: SpeedPoint) -> bool:
        """Whether that many requests of that context fit, by the middle of the band."""
        return point.batch <= self.most_batch[point.context_tokens]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        setup, speed = self.replica.model.setup, self.speed
        roofline = self.replica.model.roofline
        found: dict[str, Any] = {
            "model": setup.shape.name,
            "model_source": setup.shape.source,
            "hardware": setup.device.name,
            "devices": speed.devices,
            "basis": setup.efficiencies.basis,
            "replicas": self.replica.replicas,
            "parallelism": asdict(setup.parallelism),
            "compute_type": setup.compute_type,
            "load": asdict(speed.load),
            "quantities": [one.as_dict() for one in self.quantities],
            "user_tokens_per_s": speed.user_tokens_per_s,
            "system_tokens_per_s": speed.system_tokens_per_s,
            "system_tokens_per_s_and_device": speed.system_tokens_per_s_and_device,
            "prefill_bottleneck": speed.prefill_bottleneck,
            "decode_bottleneck": speed.decode_bottleneck,
            "ridge_operations_per_byte": roofline.ridge,
            "knee_batch": self.knee_batch,
            "knee_fits": self.knee_fits,
            "points": [{**asdict(one), "fits": self.fits(one)} for one in self.points],
            "speculation": None,
            "apart": None if self.apart is None else self.apart.as_dict(),
            "assumptions": list(speed.assumptions),
            "notes": list(self.notes),
        }
        if self.speculation is not None:
            one = self.speculation
            found["speculation"] = {
                "draft": one.draft.name,
                "acceptance": one.draft.acceptance,
                "acceptance_source": one.draft.source,
                **asdict(one.at_batch),
                "cost_ratio": one.at_batch.cost_ratio,
                "step_cost": one.step_cost,
                "draft_cost": one.draft_cost,
                "stops_at_batch": one.stops_at_batch,
                "largest_batch": one.largest_batch,
            }
        return found


def speed_plan(
    replica: Replica,
    load: Load,
    *,
    batches: Iterable[int] | None = None,
    contexts: Iterable[int] | None = None,
    draft: Draft | None = None,
) -> SpeedPlan:
    """Speed of `replica` under `load`, and of decoding at each batch and context.

    batches: None for powers of two that fit. contexts: None for that of the load half way through
    its answers. Raises ConfigError where the load does not fit.
    """
    model, shape = replica.model, replica.shape
    whole = load.prompt_tokens + load.output_tokens
    notes = (*replica.check_fits(whole, load.batch), *parallel_notes(replica))
    if shape.context_tokens is not None and whole > shape.context_tokens:
        notes += (
            f"prompt and output together, {whole:,} tokens, are "
            f"{whole - shape.context_tokens:,} more than the {shape.context_tokens:,} that "
            f"{shape.name} was made for",
        )
    speed = model.speed(load)
    asked = None if batches is None else tuple(batches)
    lengths = tuple(contexts) if contexts is not None else (load.middle_context_tokens,)
    most = {length: replica.most_batch(length) for length in lengths}
    half_way = load.middle_context_tokens
    points: list[SpeedPoint] = []
    for length in lengths:
        chosen = asked
        if chosen is None:
            chosen = tuple(one for one in _powers(load.batch) if one <= most[length])
        points += model.sweep(chosen, (length,))
    if replica.place.note:
        notes += (replica.place.note,)
    return SpeedPlan(
        replica=replica,
        speed=speed,
        figures=(replica.weights, *speed_figures(model, speed, replica.weights)),
        knee_batch=model.knee_batch(load.middle_context_tokens),
        points=tuple(points),
        most_batch=most,
        most_at_load=(most[half_way] if half_way in most else replica.most_batch(half_way)),
        speculation=None if draft is None else _speculation(replica, load, draft),
        notes=notes,
    )


def _powers(batch: int) -> list[int]:
    powers = {1 << power for power in range(LARGEST_SWEPT_BATCH.bit_length())}
    return sorted(powers | {batch})


def _speculation(replica: Replica, load: Load, draft: Draft) -> Speculation:
    model, context = replica.model, load.middle_context_tokens
    largest = max(LARGEST_SWEPT_BATCH, load.batch)
    paying = paying_batches(
        draft.acceptance,
        draft.tokens,
        largest,
        lambda batch, tokens: model.decode_step(batch, context, tokens).seconds,
        lambda batch, _: draft.step_s(model, batch, context),
    )
    step_cost, draft_cost = _costs_of(model, load.batch, draft)
    is_unseen = replica.place.kind == "cpu" and step_cost.startswith("predicted")
    return Speculation(
        draft=draft,
        at_batch=draft.speedup(model, load.batch, context),
        stops_at_batch=paying.stops_at_batch,
        largest_batch=largest,
        step_cost=step_cost,
        draft_cost=draft_cost,
        most_unseen=MOST_OF_A_PLACE * draft.tokens if is_unseen else 0.0,
    )


def _costs_of(model: SpeedModel, batch: int, draft: Draft) -> tuple[str, str]:
    """Where the time of a step with drafts, and of making them, comes from."""
    measured, basis = model.setup.measured_steps, model.setup.efficiencies.basis
    step = drafting = f"predicted, {basis}"
    if measured is not None:
        said = (
            f"measured on {measured.day} of {measured.batches[0]} to {measured.batches[-1]} "
            f"requests, context {measured.context_tokens:,}"
        )
        if model.drafts_measured(batch, draft.tokens + 1):
            step = said
        if draft.measured_ratio(model, batch) is not None:
            drafting = said
    if draft.model is None and draft.passes is None:
        drafting = "takes no time"
    return step, drafting
