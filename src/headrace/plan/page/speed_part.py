"""`plan speed` on a page: figures, the roofline, throughput against latency, the sweep."""

from __future__ import annotations

from headrace.page.figures import compact, duration, figure
from headrace.page.plots.frame import Key, Plot, key_at
from headrace.page.plots.lines import Axis, Line, Point, lines_plot
from headrace.page.plots.roofline import Roof, roofline_plot
from headrace.page.sheet import Cell, Sheet
from headrace.plan.formatting import shown
from headrace.plan.page.part import PlanPart, figure_row
from headrace.plan.speed.disaggregation import DisaggregatedSpeed
from headrace.plan.speed.speed_plan import SpeedPlan
from headrace.plan.speed.speed_roof import RoofPoint, SpeedRoof, speed_roof
from headrace.plan.speed.sweep_figures import point_id
from headrace.plan.step.roofline import Bottleneck

_BOUND: dict[Bottleneck, str] = {
    "bandwidth": "memory bandwidth",
    "compute": "compute",
    "link": "links between devices",
    "overhead": "launches of kernels",
}


def speed_part(found: SpeedPlan) -> PlanPart:
    """The part of a page."""
    setup, speed, load = found.replica.model.setup, found.speed, found.speed.load
    devices = f"{speed.devices} x " if speed.devices > 1 else ""
    cached = f", {load.cached_tokens:,} of it cached" if load.cached_tokens else ""
    knee = found.knee_batch
    bend = (
        "No batch computes longer than it reads"
        if knee is None
        else f"The knee is at batch {knee:,}"
    )
    if knee is not None and not found.knee_fits:
        bend += f", beyond what fits ({found.most_at_load:,})"
    verdicts: list[tuple[str, bool | None]] = [
        (
            f"Prefill is bound by {_BOUND[speed.prefill_bottleneck]}, decode at batch "
            f"{load.batch:,} by {_BOUND[speed.decode_bottleneck]}. {bend}.",
            None,
        )
    ]
    if found.speculation is not None:
        verdicts.append(_speculation(found))
    if found.apart is not None:
        verdicts.append(_apart(found.apart))
    return PlanPart(
        title="How fast",
        subject=(
            f"{setup.shape.name} ({setup.shape.source}) on {devices}{setup.device.name}, "
            f"{setup.compute_type} products, {setup.efficiencies.basis}; prompt "
            f"{load.prompt_tokens:,} tokens{cached}, output {load.output_tokens:,}, batch "
            f"{load.batch:,}"
        ),
        verdicts=tuple(verdicts),
        tiles=(
            ("TTFT, prefill alone", duration(speed.ttft.value_s * 1e3)),
            ("TPOT", duration(speed.tpot.value_s * 1e3)),
            ("E2E, without waiting", duration(speed.e2e.value_s * 1e3)),
            ("tokens/s of a replica", figure(speed.system_tokens_per_s)),
        ),
        plots=tuple(one for one in (_roofline(found), _frontier(found)) if one is not None),
        sheets=(_figures(found), *_sweep(found)),
        assumptions=(
            *found.notes,
            *speed.assumptions,
            *([found.apart.note] if found.apart is not None and found.apart.note else []),
        ),
        quantities=found.quantities,
    )


def _speculation(found: SpeedPlan) -> tuple[str, bool | None]:
    one = found.speculation
    assert one is not None
    stops = (
        f"pays at every batch up to {one.largest_batch:,}"
        if one.stops_at_batch is None
        else f"stops paying at batch {one.stops_at_batch:,}"
        if one.stops_at_batch > 1
        else "pays at no batch size"
    )
    told = (
        f"Speculation ({one.draft.name}, {one.draft.tokens} drafted, acceptance "
        f"{one.draft.acceptance:g}): {one.at_batch.speedup:.2f} x at batch "
        f"{one.at_batch.batch:,}; it {stops}."
    )
    return told, one.at_batch.speedup > 1


def _apart(one: DisaggregatedSpeed) -> tuple[str, bool | None]:
    """Pools of their own against as many replicas that do both."""
    pools = one.pools
    return (
        f"Apart, {pools.prefill} replicas that prefill and {pools.decode} that decode serve "
        f"{figure(one.requests.value)} requests/s, bound by {one.bound_by}; as many together "
        f"serve {figure(one.together.value)}. Pools of {one.best[0]}:{one.best[1]} serve the "
        "most per replica.",
        one.requests.value >= one.together.value,
    )


def _roofline(found: SpeedPlan) -> Plot:
    roof: SpeedRoof = speed_roof(found)
    asked = found.speed.load.batch
    decode = [_point(one, asked) for one in roof.decode]
    context = found.speed.load.middle_context_tokens
    here = found.replica.model.setup.efficiencies.of_measured
    return roofline_plot(
        "Roofline",
        [
            Roof("as measured" if here else "data sheet", *roof.sheet),
            Roof("with the efficiencies", *roof.reached),
        ],
        [
            Line(Key(f"decode by batch, context {context:,}", "c1"), decode),
            Line(Key("prefill", "c2", mark="dot"), [_point(roof.prefill, asked)]),
        ],
        caption=(
            "A step under the slope waits for memory, one under the flat roof for matrix "
            "products. Time of links and launches puts a step below its roof."
        ),
    )


def _point(one: RoofPoint, asked: int) -> Point:
    told = (
        f"{one.name}: {figure(one.intensity)} operations per byte, "
        f"{compact(one.operations_per_s)} operations/s, {duration(one.seconds * 1e3)}"
    )
    label = "prefill" if one.batch is None else f"batch {one.batch:,}" if one.batch == asked else ""
    return Point(one.intensity, one.operations_per_s, told, label)


def _frontier(found: SpeedPlan) -> Plot | None:
    contexts = dict.fromkeys(one.context_tokens for one in found.points)
    asked, lines = found.speed.load.batch, []
    for place, context in enumerate(contexts):
        points = [one for one in found.points if one.context_tokens == context]
        lines.append(
            Line(
                key_at(place, f"context {context:,}"),
                [
                    Point(
                        one.tpot_s * 1e3,
                        one.system_tokens_per_s,
                        f"batch {one.batch:,}: TPOT {duration(one.tpot_s * 1e3)}, "
                        f"{figure(one.user_tokens_per_s)} tokens/s a user, "
                        f"{figure(one.system_tokens_per_s)} in all, bound by {one.bottleneck}"
                        + ("" if found.fits(one) else ", does not fit"),
                        label=f"{one.batch:,}"
                        if one.batch == asked or one in (points[0], points[-1])
                        else "",
                        hollow=not found.fits(one),
                    )
                    for one in points
                ],
            )
        )
    alone = f"Context {next(iter(contexts)):,}. " if len(contexts) == 1 else ""
    wide_range = max((one.tpot_s for one in found.points), default=0) > 4 * min(
        (one.tpot_s for one in found.points), default=1
    )
    return lines_plot(
        "Throughput against latency",
        lines,
        Axis("TPOT", duration, logarithmic=wide_range),
        Axis("tokens/s of all requests", compact, logarithmic=True),
        caption=alone
        + "Each point is a batch, numbers beside points; hollow ones do not fit in memory.",
    )


def _figures(found: SpeedPlan) -> Sheet:
    of_points = tuple(f"{point_id(one)}." for one in found.points)
    rows = [one for one in found.quantities if not one.id.startswith(of_points or ("\0",))]
    return Sheet("Figures", ("figure and id", "value", "band"), tuple(map(figure_row, rows)))


def _sweep(found: SpeedPlan) -> tuple[Sheet, ...]:
    if not found.points:
        return ()
    rows = tuple(
        (
            Cell(f"{one.context_tokens:,}", point_id(one)),
            Cell(one.bottleneck),
            Cell("yes" if found.fits(one) else "no", "", found.fits(one)),
            Cell(f"{one.batch:,}"),
            Cell(shown(one.tpot_s, "s")),
            Cell(figure(one.user_tokens_per_s)),
            Cell(figure(one.system_tokens_per_s)),
        )
        for one in found.points
    )
    columns = ("context and id", "bound by", "fits", "batch", "TPOT", "tokens/s a user",
               "tokens/s in all")  # fmt: skip
    note = "The ids of figures are that of the row followed by .tpot, .user or .all."
    return (Sheet("Decoding by batch", columns, rows, (note,), names=3),)
