"""Latency over throughput of several runs: where more load only makes everybody wait.

The knee is the point of the greatest power, throughput over latency (Kleinrock, "Power and
deterministic rules of thumb for probabilistic problems in computer communications", 1979): before
it load costs little, beyond it latency grows faster than throughput.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.bench.definitions import definition as definition_named
from headrace.bench.report.figures import DASH, compact, duration, figure, share
from headrace.bench.report.markup import Markup, tag
from headrace.bench.report.plots import frame
from headrace.bench.report.plots.frame import Figure, Key
from headrace.bench.report.plots.scale import linear, suited
from headrace.bench.statistics import Distribution
from headrace.bench.summary import Summary

WIDTH, HEIGHT = 520, 320


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One run of a sweep: what was offered, what came of it. None: not measured.

    ttft: from the intended send time. goodput_fraction, met: None without an SLO. good, judged:
    requests that met its limits of each request, of those that met or missed them.
    """

    name: str
    offered_per_s: float | None
    rps: float
    tps_system: float
    ttft: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    in_flight: float | None
    goodput_fraction: float | None
    met: bool | None
    good: int | None = None
    judged: int = 0


_SCHEDULED: float = -1.0


def load_point(
    name: str, summary: Summary, offered_per_s: float | None = _SCHEDULED
) -> LoadPoint | None:
    """None of a run in which nothing was completed.

    offered_per_s: None of a closed loop, which offers no rate; by default that of the schedule.
    """
    if not summary.rps:
        return None
    under = definition_named(summary.definition)
    got = {}
    for canonical in ("ttft", "tpot", "e2e"):
        metric = under.metric(canonical)
        spread = None if metric is None else summary.from_intended.get(metric.name)
        got[canonical] = None if spread is None else spread.distribution
    good = summary.goodput
    return LoadPoint(
        name=name,
        offered_per_s=summary.offered_per_s if offered_per_s == _SCHEDULED else offered_per_s,
        rps=summary.rps,
        tps_system=summary.tps_system or 0.0,
        ttft=got["ttft"],
        tpot=got["tpot"],
        e2e=got["e2e"],
        in_flight=summary.concurrency.mean,
        goodput_fraction=None if good is None else good.fraction,
        met=None if good is None else good.met,
        good=None if good is None else good.good,
        judged=0 if good is None else good.judged,
    )


def by_load(of: LoadPoint) -> tuple[float, float]:
    """To sort by: not by throughput, for past saturation the curve turns back on itself."""
    return of.offered_per_s or of.rps, of.rps


def knee(points: Sequence[LoadPoint]) -> LoadPoint | None:
    """The point of most power by median end-to-end latency; None of fewer than three points."""
    known = [(one.rps / one.e2e.p50, one) for one in points if one.e2e and one.e2e.p50 > 0]
    if len(known) < 3:
        return None
    return max(known, key=lambda pair: pair[0])[1]


_LINES: tuple[tuple[str, str, str | None, Callable[[Distribution], float]], ...] = (
    ("p50", "c1", None, lambda of: of.p50),
    ("p95", "c3", "6 3", lambda of: of.p95),
    ("p99", "c2", "2 3", lambda of: of.p99),
)


def load_curve(
    title: str,
    points: Sequence[LoadPoint],
    of: Callable[[LoadPoint], Distribution | None],
    *,
    limit_ms: float | None = None,
    over: Literal["requests", "tokens", "in flight"] = "requests",
) -> Figure | None:
    """Of at least two points, in order of what was offered.

    over: requests or output tokens completed per second, or requests in flight in the mean.
    """
    known = [
        (point, got)
        for point in points
        if (got := of(point)) is not None and (over != "in flight" or point.in_flight is not None)
    ]
    if len(known) < 2:
        return None
    known.sort(key=lambda pair: by_load(pair[0]))

    def across(point: LoadPoint) -> float:
        if over == "in flight":
            return point.in_flight or 0.0
        return point.tps_system if over == "tokens" else point.rps

    heights = [value(got) for _, got in known for _, _, _, value in _LINES]
    slo = "" if limit_ms is None else f"SLO {duration(limit_ms)}"
    outside = frame.beyond(limit_ms, heights, slo)
    limit_ms = frame.within(limit_ms, heights)
    heights += [limit_ms] if limit_ms is not None else []
    x = linear([across(point) for point, _ in known], frame.LEFT, WIDTH - frame.RIGHT)
    y = suited(heights, HEIGHT - frame.BOTTOM, frame.TOP)
    what, unit = _OVER[over]
    whole = f"{title} over {what}"
    parts = frame.axes(
        x,
        y,
        f"{what}, mean" if over == "in flight" else f"{what}, completed",
        title + (", logarithmic" if y.logarithmic else ""),
        x_label=compact,
        y_label=duration,
    )
    bend = knee([point for point, _ in known])
    if bend is not None:
        name = f"knee {figure(across(bend))}{unit}"
        parts += frame.limit_upright(x, y, across(bend), name)
    if limit_ms is not None:
        parts += frame.limit_across(x, y, limit_ms, slo)
    keys = []
    for name, colour, dash, value in _LINES:
        places = [(x.at(across(point)), y.at(value(got))) for point, got in known]
        parts.append(frame.curve(places, colour, dash=dash))
        parts += [
            _dot(place, colour, f"{point.name}, {name} {duration(value(got))}. {_told(point)}")
            for place, (point, got) in zip(places, known, strict=True)
        ]
        keys.append(Key(name, colour, dash))
    return Figure(
        title=whole,
        svg=frame.plot(WIDTH, HEIGHT, whole, parts),
        caption=(
            "Each point is a run, joined in order of offered load."
            + (" Knee: most throughput over median end-to-end latency." if bend else "")
            + (f" {outside}" if outside else "")
        ),
        keys=tuple(keys),
    )


_OVER = {
    "requests": ("requests per second", "/s"),
    "tokens": ("output tokens per second", "/s"),
    "in flight": ("requests in flight", ""),
}
"""What the x axis is, and what stands behind its figures."""


def _dot(place: tuple[float, float], colour: str, told: str) -> Markup:
    return tag(
        "circle",
        tag("title", told),
        cx=place[0],
        cy=place[1],
        r=4,
        fill=f"var(--{colour})",
        class_="dot",
    )


def _told(point: LoadPoint) -> str:
    offered = DASH if point.offered_per_s is None else figure(point.offered_per_s)
    told = (
        f"Offered {offered}/s, completed {figure(point.rps)}/s, {figure(point.tps_system)} tokens/s"
    )
    if point.goodput_fraction is not None:
        told += f", {share(point.goodput_fraction)} good"
    return told
