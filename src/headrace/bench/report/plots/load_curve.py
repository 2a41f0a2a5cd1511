"""Latency over throughput of several runs: where more load only makes everybody wait.

The knee is the point of the greatest power, throughput over latency (Kleinrock, "Power and
deterministic rules of thumb for probabilistic problems in computer communications", 1979): before
it load costs little, beyond it latency grows faster than throughput.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median
from typing import Literal

from headrace.bench.load_point import LoadPoint, by_load
from headrace.bench.statistics import Distribution
from headrace.page.figures import DASH, compact, duration, figure, share
from headrace.page.markup import Markup, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import linear, suited

WIDTH, HEIGHT = 520, 320


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
) -> Plot | None:
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
    key = by_load([point for point, _ in known])
    known.sort(key=lambda pair: key(pair[0]))

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
    loads = [list(runs) for _, runs in groupby(known, key=lambda pair: key(pair[0])[0])]
    keys = []
    for name, colour, dash, value in _LINES:
        places = [(x.at(across(point)), y.at(value(got))) for point, got in known]
        joined = [
            (
                x.at(median(across(point) for point, _ in runs)),
                y.at(median(value(got) for _, got in runs)),
            )
            for runs in loads
        ]
        keys.append(Key(name, colour, dash))
        parts.append(frame.curve(joined, keys[-1]))
        parts += [
            _dot(place, colour, f"{point.name}, {name} {duration(value(got))}. {_told(point)}")
            for place, (point, got) in zip(places, known, strict=True)
        ]
    return Plot(
        title=whole,
        svg=frame.svg(WIDTH, HEIGHT, whole, parts),
        caption=(
            "Each point is a run, joined in order of offered load"
            + (", runs of the same load at their median." if len(loads) < len(known) else ".")
            + (" Knee: maximum of throughput divided by median end-to-end latency." if bend else "")
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
    load = f"Offered {offered}/s"
    if point.offered_per_s is None and point.users is not None:
        load = "1 user" if point.users == 1 else f"{point.users} users"
    told = f"{load}, completed {figure(point.rps)}/s, {figure(point.tps_system)} tokens/s"
    if point.goodput_fraction is not None:
        told += f", {share(point.goodput_fraction)} good"
    return told
