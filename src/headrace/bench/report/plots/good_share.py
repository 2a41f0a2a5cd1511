"""Which share of requests was good under the SLO, load by load, and how sure that is.

A bar is the interval of one run's share (`proportion`); a search pools runs of one rate and divides
the error among its looks, so that its own intervals are other ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.load_point import LoadPoint, all_closed
from headrace.bench.proportion import proportion_interval
from headrace.bench.statistics import CONFIDENCE
from headrace.page.figures import compact, figure, share
from headrace.page.markup import Markup, shortest, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Plot
from headrace.page.plots.scale import Scale, linear

WIDTH, HEIGHT = 520, 320


def good_share(points: Sequence[LoadPoint], wanted: float | None = None) -> Plot | None:
    """Of at least two open loops with an SLO, or closed ones where all are. wanted: the share that
    is to be good."""
    closed = all_closed(points)
    over = "users" if closed else "offered load"
    loads = [(point.users if closed else point.offered_per_s, point) for point in points]
    known = [
        (float(load), point.good, point)
        for load, point in loads
        if load is not None and point.good is not None and point.judged
    ]
    if len(known) < 2:
        return None
    known.sort(key=lambda one: one[0])
    x = linear([load for load, _, _ in known], frame.LEFT, WIDTH - frame.RIGHT)
    y = Scale(0, 1, HEIGHT - frame.BOTTOM, frame.TOP)
    parts = frame.axes(
        x,
        y,
        "users" if closed else "requests per second, offered",
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
    parts += [_run(point, load, good, x, y) for load, good, point in known]
    return Plot(
        title=f"Good requests over {over}",
        svg=frame.svg(WIDTH, HEIGHT, f"Share of good requests over {over}", parts),
        caption="A point is a run; its bar is the interval that holds the true share with "
        f"{CONFIDENCE:.0%} confidence.",
    )


def _run(point: LoadPoint, load: float, good: int, x: Scale, y: Scale) -> Markup:
    part = good / point.judged
    low, high = proportion_interval(good, point.judged, (1 - CONFIDENCE) / 2)
    told = (
        f"{point.name}: {good} of {point.judged} good, {share(part)} ({share(low)} to "
        f"{share(high)})"
    )
    if point.offered_per_s is not None:
        told += f", {figure(load)} offered per second"
    across = shortest(x.at(load))
    bar = f"M{across} {shortest(y.at(low))}V{shortest(y.at(high))}"
    return tag(
        "g",
        tag("title", told),
        tag("path", d=bar, stroke="var(--c1)", stroke_width=2, stroke_opacity="0.45"),
        tag("circle", cx=x.at(load), cy=y.at(part), r=4, fill="var(--c1)", class_="dot"),
    )
