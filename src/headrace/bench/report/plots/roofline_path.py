"""The roofline over time: where each interval between two readings of the server's counters lay.

The roof is min(peak, bandwidth · intensity) (Williams, Waterman, Patterson, CACM 2009); a point is
what the steps of one interval did per second of their own time. Later points have stronger colours.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.report.plots.heat import LEVELS
from headrace.bench.server_history import Stretch
from headrace.page.figures import compact, figure, share
from headrace.page.markup import Markup, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import logarithmic
from headrace.page.plots.thin import evenly, thinned_note

WIDTH, HEIGHT = 520, 320
MOST_POINTS = 200


def roofline_path(
    intervals: Sequence[Stretch], *, bytes_per_s: float, ops_per_s: float
) -> Plot | None:
    """None without an interval in which steps were done. Limits are above 0."""
    shown = evenly(intervals, MOST_POINTS)
    if not shown:
        return None
    ridge = ops_per_s / bytes_per_s
    across = [ridge / 4, ridge * 4, *(one.intensity for one in shown)]
    x = logarithmic(across, frame.LEFT, WIDTH - frame.RIGHT)
    up = [ops_per_s * 1.2, x.low * bytes_per_s, *(one.ops_per_s for one in shown)]
    y = logarithmic(up, HEIGHT - frame.BOTTOM, frame.TOP)
    parts = frame.axes(
        x,
        y,
        "operations per byte moved, logarithmic",
        "operations/s, logarithmic",
        x_label=compact,
        y_label=compact,
    )
    corners = [(x.low, x.low * bytes_per_s), (ridge, ops_per_s), (x.high, ops_per_s)]
    told = (
        f"{figure(bytes_per_s / 1e9)} GB/s of memory, {figure(ops_per_s / 1e9)} · 10⁹ "
        f"operations/s, ridge at {figure(ridge)}"
    )
    roof = Key("roof", "ink2")
    parts.append(frame.curve([(x.at(a), y.at(b)) for a, b in corners], roof, title=told))
    parts += [
        _dot(
            one,
            place,
            len(shown),
            roofed(one, bytes_per_s, ops_per_s),
            (x.at(one.intensity), y.at(one.ops_per_s)),
        )
        for place, one in enumerate(shown)
    ]
    return Plot(
        title="Roofline over time",
        svg=frame.svg(WIDTH, HEIGHT, "Roofline with the run's intervals", parts),
        caption=(
            f"Limits measured on the server's machine: {told}. The later an interval, the stronger "
            "its colour. " + thinned_note(len(shown), len(intervals), "intervals", "every n-th")
        ).strip(),
        keys=(roof, Key("intervals", f"h{LEVELS}")),
    )


def roofed(one: Stretch, bytes_per_s: float, ops_per_s: float) -> float:
    """Share of what the roof allows at that intensity."""
    return one.ops_per_s / min(ops_per_s, one.intensity * bytes_per_s)


def _dot(one: Stretch, place: int, of: int, reached: float, at: tuple[float, float]) -> Markup:
    level = 2 + (LEVELS - 2) * place // max(1, of - 1)
    told = (
        f"{compact(one.at_s)} s: {figure(one.intensity)} operations per byte, "
        f"{compact(one.ops_per_s)} operations/s, {share(reached)} of the roof"
    )
    return tag(
        "circle", tag("title", told), cx=at[0], cy=at[1], r=4, fill=f"var(--h{level})", class_="dot"
    )
