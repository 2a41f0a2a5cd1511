"""`plan cost` on a page: the ways side by side, and what a month costs at each volume."""

from __future__ import annotations

import math

from headrace.page.figures import compact, figure
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.lines import Axis, Line, Point, lines_plot
from headrace.page.sheet import Cell, Sheet
from headrace.plan.cost.cost_plan import BreakEvenPair, CostPlan
from headrace.plan.formatting import band, shown
from headrace.plan.page.part import PlanPart, figure_row


def cost_part(found: CostPlan) -> PlanPart:
    """The part of a page."""
    load = found.load
    devices = f"{found.devices} x " if found.devices > 1 else ""
    where = "" if found.hardware is None else f" on {devices}{found.hardware}"
    cached = f", {load.cached_tokens:,} of it cached" if load.cached_tokens else ""
    cheapest = min(found.ways, key=lambda way: way.cost.value)
    verdicts: list[tuple[str, bool | None]] = [
        (
            f"{cheapest.cost.name} costs least for a million tokens at this utilisation: "
            f"${figure(cheapest.cost.value)}, prompt and output together.",
            None,
        )
    ]
    verdicts += [(f"{crossing_told(one)}.", None) for one in found.crossings]
    verdicts += [(f"Not known: {fact}.", False) for fact in found.missing]
    return PlanPart(
        title="At what cost",
        subject=(
            f"{found.model}{where}; prompt {load.prompt_tokens:,} tokens{cached}, output "
            f"{load.output_tokens:,}, batch {load.batch:,}"
        ),
        verdicts=tuple(verdicts),
        tiles=tuple(
            (f"{way.cost.name}, 1M tokens", f"${figure(way.cost.value)}") for way in found.ways[:4]
        ),
        plots=tuple(plot for one in found.crossings if (plot := _curve(one)) is not None),
        sheets=(_ways(found), *_served(found), *(_volumes(one) for one in found.crossings)),
        assumptions=tuple(
            dict.fromkeys((*(note for way in found.ways for note in way.notes), *found.notes))
        ),
        quantities=found.figures,
    )


def crossing_told(one: BreakEvenPair) -> str:
    """Where hardware meets the API, in a sentence without its full stop."""
    first, always = one.curve.first_tokens_per_month, one.curve.always_tokens_per_month
    name = f"{one.hardware.cost.name}, against {one.api.cost.name},"
    if first is None:
        return f"{name} never pays"
    if always is None:
        return f"{name} pays first at {compact(first)} tokens a month, where replicas are full"
    if always == first:
        return f"{name} pays from {compact(first)} tokens a month on"
    return (
        f"{name} pays first at {compact(first)} tokens a month, and always from "
        f"{compact(always)} on"
    )


def _curve(one: BreakEvenPair) -> Plot | None:
    hardware, api = one.hardware.cost.name, one.api.cost.name
    points = one.curve.points
    first, always = one.curve.first_tokens_per_month, one.curve.always_tokens_per_month
    inside = (points[0].tokens_per_month, points[-1].tokens_per_month) if points else (0.0, 0.0)
    marks = [(first, "pays first")] if first is not None else []
    if always is not None:
        marks = [*marks, (always, "pays always")] if always != first else [(always, "pays from")]
    return lines_plot(
        f"{hardware} against {api}, a month",
        [
            Line(
                Key(hardware, "c1"),
                [
                    Point(
                        point.tokens_per_month,
                        point.fleet_usd_per_month,
                        f"{compact(point.tokens_per_month)} tokens: "
                        f"${figure(point.fleet_usd_per_month)} on {point.replicas:,} replicas",
                    )
                    for point in points
                ],
            ),
            Line(
                Key(api, "c2", "6 3"),
                [
                    Point(
                        point.tokens_per_month,
                        point.api_usd_per_month,
                        f"{compact(point.tokens_per_month)} tokens: "
                        f"${figure(point.api_usd_per_month)}",
                    )
                    for point in points
                ],
            ),
        ],
        Axis("tokens a month", compact, logarithmic=True),
        Axis("USD a month", compact, logarithmic=True),
        upright=[(at, name) for at, name in marks if inside[0] <= at <= inside[1]],
        caption="Each replica added is a step up; between points the line is not computed.",
    )


def _ways(found: CostPlan) -> Sheet:
    rows = tuple(
        (
            Cell(one.cost.name, one.cost.id),
            Cell(f"{one.source}", one.as_of),
            Cell(f"${figure(one.cost.value)}"),
            Cell(band(*one.cost.band, "USD")),
            Cell(f"${figure(one.usd_per_request)}"),
        )
        for one in found.ways
    )
    return Sheet(
        "US dollars, prompt and output together",
        ("way and id", "price from", "1M tokens", "band", "a request"),
        rows,
        ("The figure of a request has this id followed by .request.",),
        names=2,
    )


def _served(found: CostPlan) -> tuple[Sheet, ...]:
    rows = [figure_row(one) for one in (*found.speed_figures, found.served) if one is not None]
    rows += [
        figure_row(one)
        for one in found.figures
        if one.id.endswith((".month", ".capacity")) and one.id.count(".") == 2
    ]
    if not rows:
        return ()
    return (Sheet("What hardware serves", ("figure and id", "value", "band"), tuple(rows)),)


def _volumes(one: BreakEvenPair) -> Sheet:
    hardware, api = one.hardware.cost.name, one.api.cost.name
    rows = tuple(
        (
            Cell(compact(point.tokens_per_month), f"{one.hardware.cost.id}.at."
                 f"{point.tokens_per_month:.0f}"),
            Cell("yes" if pays else "no", "", pays),
            Cell(f"{point.replicas:,}"),
            Cell(shown(point.fleet_usd_per_month, "USD")),
            Cell(shown(point.api_usd_per_month, "USD")),
            Cell(shown(point.fleet_usd_per_million_tokens, "USD")),
        )
        for point in one.curve.points
        for pays in [point.fleet_usd_per_month <= point.api_usd_per_month]
        if len(one.curve.points) <= 8 or math.log10(point.tokens_per_month).is_integer()
    )  # fmt: skip
    return Sheet(
        f"{hardware} against {api}, a month",
        ("tokens and id", "pays", "replicas", hardware, api, "1M tokens on hardware"),
        rows,
        names=2,
    )
