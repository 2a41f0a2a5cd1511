"""`plan simulate` on a page: latencies as curves, the service over time, goodput, cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.page.figures import compact, duration, figure, share
from headrace.page.plots.frame import Plot, key_at
from headrace.page.plots.lines import Axis, Line, Point, lines_plot
from headrace.page.sheet import Cell, Sheet
from headrace.plan.formatting import band
from headrace.plan.page.part import PlanPart, figure_row
from headrace.plan.page.time_plots import time_plots
from headrace.plan.simulation.figures import NAMES, STATISTICS, statistic_id, statistic_of
from headrace.plan.simulation.result import QUANTILES, LaneResult, SimulationResult

if TYPE_CHECKING:
    from headrace.plan.simulation.plan import SimulationPlan

_CHANCE = (
    "Bands of latencies cover only chance: 95 % by batch means, or from the minimum to the "
    "maximum where fewer than 200 requests were measured. The uncertainty of step times is "
    "not included. Counts, rates and maxima are exact for this run; another seed gives "
    "another run."
)


def simulation_part(found: SimulationPlan) -> PlanPart:
    """The part of a page."""
    result = found.result
    lanes = (result.overall, *result.lanes)
    figures = {one.id: one for one in found.quantities}
    of_latency = {
        statistic_id(metric, statistic, lane.priority)
        for lane in lanes for metric in NAMES for statistic in STATISTICS
    }  # fmt: skip
    of_run = [
        one for one in found.quantities
        if one.id.startswith("simulate.") and one.id not in of_latency
    ]  # fmt: skip
    ttft, tpot = (figures.get(statistic_id(name, "p95")) for name in ("ttft", "tpot"))
    return PlanPart(
        title="What the service does",
        subject=f"{found.title}; {_service(result)}; {_load(result)}",
        verdicts=tuple(_verdicts(found)),
        tiles=(
            *(
                (f"{name}, p95", duration(one.value * 1e3))
                for name, one in (("TTFT", ttft), ("TPOT", tpot))
                if one is not None
            ),
            ("requests/s", figure(result.requests_per_s)),
            ("output tokens/s", figure(result.output_tokens_per_s)),
            *([("requests that are good", share(result.goodput.fraction))]
              if result.goodput is not None else []),
            *([("USD an hour", f"${figure(result.cost.per_hour)}")]
              if result.cost is not None else []),
        ),
        plots=tuple(plot for plot in (*_curves(result), *_tried(found), *time_plots(result))
                    if plot is not None),
        sheets=(
            *(_latencies(one) for one in lanes),
            *_conditions(result),
            Sheet("The run", ("figure and id", "value", "band"), tuple(map(figure_row, of_run))),
        ),
        assumptions=(_CHANCE, f"Step times: {result.settings.engine.latency.source or 'given'}.",
                     *result.notes),
        quantities=found.quantities,
    )  # fmt: skip


def _service(result: SimulationResult) -> str:
    settings = result.settings
    split, scale = settings.disaggregation, settings.autoscale
    if split is not None:
        said = f"{split.prefill_replicas:,} prefill and {split.decode_replicas:,} decode replicas"
    else:
        said = f"{settings.replicas:,} replica{'s' if settings.replicas != 1 else ''}"
    if scale is not None:
        said += f", scaled {scale.least:,} to {scale.most:,} by {scale.by}"
    return f"{said}, {settings.routing}"


def _load(result: SimulationResult) -> str:
    requests = max(1, result.completed)
    return (
        f"{result.arrived:,} requests in {duration(result.seconds * 1e3)}, with "
        f"{result.prompt_tokens / requests:,.0f} tokens of prompt and "
        f"{result.served_tokens / requests:,.0f} of answer"
    )


def _verdicts(found: SimulationPlan) -> list[tuple[str, bool | None]]:
    result, fewest = found.result, found.fewest
    told: list[tuple[str, bool | None]] = []
    if fewest is not None:
        told.append(
            (f"{fewest.replicas:,} replicas are the fewest with which {share(fewest.attainment)} "
             "of the requests are good.", True)
        )  # fmt: skip
    if result.overload is not None:
        said = result.overload_text
        told.append((f"{said[0].upper()}{said[1:]}.", False))
    goodput = result.goodput
    if goodput is not None:
        all_good = goodput.good == goodput.judged and goodput.met is not False
        of_all = "" if goodput.met is None else (
            " Limits of all requests together are met." if goodput.met
            else " A limit of all requests together is missed."
        )  # fmt: skip
        told.append(
            (f"{goodput.good:,} of {goodput.judged:,} requests are good "
             f"({share(goodput.fraction)}), {figure(goodput.requests_per_s)} a second.{of_all}",
             True if all_good else False if goodput.met is False else None)
        )  # fmt: skip
    told.append(
        (f"Replicas are busy {share(result.busy_share)} of the time they are paid for, with "
         f"{figure(result.batch)} requests in a step; at most {share(result.kv_share_most)} of the "
         f"KV cache is in use and {result.waiting_most:,} requests wait.", None)
    )  # fmt: skip
    if result.refused:
        told.append((f"{result.refused:,} requests fit in no replica and were refused.", False))
    if result.failures:
        told.append(
            (f"{len(result.failures):,} replicas failed; {result.retries:,} requests were "
                "started again.",
             None)
        )  # fmt: skip
    return told


def _curves(result: SimulationResult) -> list[Plot | None]:
    """Shares of requests by latency: of all, and by priority where there are several."""
    lanes = result.lanes or (result.overall,)
    of_all = {name: _cdf(result.overall, name) for name in ("queue", "ttft", "e2e")}
    caption = "The p95 is where a curve reaches 95 %; points are drawn to the last request."
    plots = [
        lines_plot(
            "Requests by latency",
            [
                Line(key_at(place, NAMES[name]), points, dots=False)
                for place, (name, points) in enumerate(of_all.items())
            ],
            Axis("latency", duration, logarithmic=True),
            Axis("share of requests", share),
            upright=_limits(result, ("ttft", "e2e")),
            caption=caption,
        )
    ]
    for metric, title in (("tpot", "Requests by TPOT"), ("ttft", "TTFT by priority")):
        if metric == "ttft" and not result.lanes:
            continue
        plots.append(
            lines_plot(
                title,
                [
                    Line(
                        key_at(place, NAMES[metric] if lane.priority is None
                               else f"priority {lane.priority}"),
                        _cdf(lane, metric), dots=False,
                    )
                    for place, lane in enumerate(lanes)
                ],
                Axis(NAMES[metric], duration, logarithmic=metric == "ttft"),
                Axis("share of requests", share),
                upright=_limits(result, (metric,)),
            )
        )  # fmt: skip
    return plots


def _cdf(lane: LaneResult, metric: str) -> list[Point]:
    """Of times above 0, as an axis of their logarithm has no 0."""
    spread = lane.spreads[metric]
    if spread is None:
        return []
    return [
        Point(seconds * 1e3, part)
        for part, seconds in zip(QUANTILES, spread.quantiles_s, strict=True)
        if seconds > 0
    ]


def _limits(result: SimulationResult, metrics: Sequence[str]) -> list[tuple[float, str]]:
    """Limits of each request, which are written as `ttft:500`, in ms."""
    if result.goodput is None:
        return []
    found = []
    for one in result.goodput.conditions:
        metric, _, limit = one.condition.partition(":")
        if metric in metrics and limit.replace(".", "", 1).isdigit():
            found.append((float(limit), f"{NAMES[metric].split()[0]} limit"))
    return found


def _tried(found: SimulationPlan) -> list[Plot | None]:
    fewest = found.fewest
    if fewest is None:
        return []
    points = [
        Point(count, part, f"{count:,} replicas: {share(part)} good, {'met' if met else 'not met'}",
              hollow=not met)
        for count, met, part in sorted(fewest.tried)
    ]  # fmt: skip
    return [
        lines_plot(
            "Good requests by replicas",
            [Line(key_at(0, "share good"), points)],
            Axis("replicas", compact),
            Axis("share of requests", share),
            upright=[(fewest.replicas, f"fewest, {fewest.replicas:,}")],
            across=[(fewest.attainment, f"wanted {share(fewest.attainment)}")],
            caption="Each point is a run of the whole load; hollow ones do not meet the SLO.",
        )
    ]


def _latencies(lane: LaneResult) -> Sheet:
    of = "" if lane.priority is None else f", priority {lane.priority}"
    rows = []
    for metric, name in NAMES.items():
        spread = lane.spreads[metric]
        if spread is None:
            continue
        cells = [
            Cell(duration(value * 1e3), "" if low == high else band(low, high, "s"))
            for value, low, high in (statistic_of(spread, one) for one in STATISTICS)
        ]
        id = statistic_id(metric, "", lane.priority).rstrip(".")
        rows.append((Cell(name, id), Cell(f"{spread.count:,}"), *cells))
    return Sheet(
        f"Latency{of}",
        ("measure and id", "requests", "mean", "p50", "p90", "p95", "p99", "longest"),
        tuple(rows),
        (
            "The ids of figures are that of the row followed by .mean, .p50, .p90, .p95, .p99 or "
            ".most.",
        ),
    )


def _conditions(result: SimulationResult) -> tuple[Sheet, ...]:
    if result.goodput is None:
        return ()
    rows = tuple(
        (
            Cell(one.condition),
            Cell("met" if one.met else "missed", "", one.met),
            Cell("" if one.share is None else share(one.share)),
            Cell("" if one.value_ms is None else duration(one.value_ms)),
        )
        for one in result.goodput.conditions
    )
    columns = ("limit", "", "share of requests", "of all requests")
    return (Sheet("Goodput, by limit", columns, rows, names=2),)
