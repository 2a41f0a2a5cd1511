"""Where the steps of a speed plan lie on the roofline: operations per byte, operations/s."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.speed.speed import Load, SpeedModel
from headrace.plan.speed.speed_plan import SpeedPlan
from headrace.plan.step.step import StepCounter
from headrace.telemetry.work import Work


@dataclass(frozen=True)
class RoofPoint:
    """A step or a prefill. intensity: operations per byte. batch: None of the prefill."""

    name: str
    intensity: float
    operations_per_s: float
    seconds: float
    batch: int | None = None


@dataclass(frozen=True)
class SpeedRoof:
    """The roofline of the devices that a stage is divided over."""

    sheet: tuple[float, float]
    reached: tuple[float, float]
    """With `sheet`: bytes/s and operations/s as stated, and with the efficiencies."""
    prefill: RoofPoint
    """Point of the prompt's prefill."""
    decode: tuple[RoofPoint, ...]
    """Points of the table's batches at the load's context, ascending."""


def speed_roof(plan: SpeedPlan) -> SpeedRoof:
    """Limits and points of a plan; batches are those of its table, and the load's own."""
    model, load = plan.replica.model, plan.speed.load
    roofline = model.roofline
    many = roofline.devices
    context = load.middle_context_tokens
    batches = sorted({load.batch, *(one.batch for one in plan.points)})
    return SpeedRoof(
        sheet=(roofline.bandwidth_bytes_per_s * many, roofline.peak_operations_per_s * many),
        reached=(
            roofline.bandwidth_bytes_per_s * roofline.bandwidth_efficiency * many,
            roofline.peak_operations_per_s * roofline.compute_efficiency * many,
        ),
        prefill=_prefill(model, load),
        decode=tuple(_decode(model, batch, context) for batch in batches),
    )


def _counter(model: SpeedModel) -> StepCounter:
    setup = model.setup
    return StepCounter(setup.shape, setup.storage, tensor=setup.parallelism.tensor)


def _decode(model: SpeedModel, batch: int, context: int) -> RoofPoint:
    part = -(-batch // model.setup.parallelism.pipeline)
    work = _counter(model).decode(part, context, 1).work
    seconds = model.decode_step(batch, context).seconds
    return RoofPoint(
        f"decode, batch {batch:,}", work.intensity, work.operations / seconds, seconds, batch
    )


def _prefill(model: SpeedModel, load: Load) -> RoofPoint:
    counter, size = _counter(model), model.setup.prefill_chunk_tokens
    works = [
        counter.prefill(
            min(size, load.prompt_tokens - start), start, last=start + size >= load.prompt_tokens
        ).work
        for start in range(load.cached_tokens, load.prompt_tokens, size)
    ]
    work = Work(sum(one.bytes for one in works), sum(one.operations for one in works))
    found = model.prefill(load.prompt_tokens, load.cached_tokens)
    # With a pipeline stages work beside each other; the roof is of one stage's devices.
    one_stage = model.setup.parallelism.pipeline == 1
    seconds = found.seconds if one_stage else found.parts.seconds
    return RoofPoint("prefill", work.intensity, work.operations / seconds, seconds)
