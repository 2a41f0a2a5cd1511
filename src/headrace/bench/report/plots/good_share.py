"""Which share of requests was good under the SLO, load by load, and how sure that is.

A bar is the interval of one run's share (`proportion`); a search pools runs of one rate and divides
the error among its looks, so that its own intervals are other ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.proportion import proportion_interval
from headrace.bench.report.figures import compact, figure, share
from headrace.bench.report.markup import Markup, shortest, tag
from headrace.bench.report.plots import frame
from headrace.bench.report.plots.frame import Figure
from headrace.bench.report.plots.load_curve import LoadPoint
from headrace.bench.report.plots.scale import Scale, linear
from headrace.bench.statistics import CONFIDENCE

WIDTH, HEIGHT = 520, 320


def good_share(points: Sequence[LoadPoint], wanted: float | None = None) -> Figure | None:
    """Of at least two open loops with an SLO. wanted: the share that is to be good."""
    known = [
        (point.offered_per_s, point.good, point)
        for point in points
        if point.offered_per_s is not None and point.good is not None and point.judged
    ]
    if len(known) < 2:
        return None
    known.sort(key=lambda one: one[0])
    x = linear([rate for rate, _, _ in known], frame.LEFT, WIDTH - frame.RIGHT)
    y = Scale(0, 1, HEIGHT - frame.BOTTOM, frame.TOP)
    parts = frame.axes(
        x,
        y,
        "requests per second, offered",
        "good under the SLO",
        x_label=compact,
        y_label=lambda part: f"{part * 100:.0f} %",
    )
    if wanted is not None:
        at = y.at(wanted)
        parts.append(tag("line", x1=x.start, y1=at, x2=x.end, y2=at, class_="limit"))
        # Below the line and on the left: where little is offered all is good.
        parts.append(
            tag("text", f"wanted {share(wanted)}", x=x.start + 5, y=at + 16, class_="note")
        )
    parts += [_run(point, rate, good, x, y) for rate, good, point in known]
    return Figure(
        title="Good requests over offered load",
        svg=frame.plot(WIDTH, HEIGHT, "Share of good requests over offered load", parts),
        caption=f"A point is a run; its bar is where the true share lies with {CONFIDENCE:.0%} "
        "confidence.",
    )


def _run(point: LoadPoint, rate: float, good: int, x: Scale, y: Scale) -> Markup:
    part = good / point.judged
    low, high = proportion_interval(good, point.judged, (1 - CONFIDENCE) / 2)
    told = (
        f"{point.name}: {good} of {point.judged} good, {share(part)} ({share(low)} to "
        f"{share(high)}), {figure(rate)} offered per second"
    )
    across = shortest(x.at(rate))
    bar = f"M{across} {shortest(y.at(low))}V{shortest(y.at(high))}"
    return tag(
        "g",
        tag("title", told),
        tag("path", d=bar, stroke="var(--c1)", stroke_width=2, stroke_opacity="0.45"),
        tag("circle", cx=x.at(rate), cy=y.at(part), r=4, fill="var(--c1)", class_="dot"),
    )
