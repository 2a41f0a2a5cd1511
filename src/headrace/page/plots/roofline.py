"""The roofline: what a machine can do at each number of operations per byte, and what is done.

A roof is min(peak, bandwidth · intensity) (Williams, Waterman, Patterson, CACM 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.page.figures import compact, figure
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.lines import HEIGHT, WIDTH, Line, Point, dot
from headrace.page.plots.scale import logarithmic


@dataclass(frozen=True, slots=True)
class Roof:
    """A roof of a roofline plot."""

    name: str
    bytes_per_s: float
    operations_per_s: float
    """With `bytes_per_s`: above 0."""

    @property
    def ridge(self) -> float:
        """Operations per byte from which the peak is the limit."""
        return self.operations_per_s / self.bytes_per_s

    def at(self, intensity: float) -> float:
        """Operations/s at most."""
        return min(self.operations_per_s, intensity * self.bytes_per_s)


def roofline_plot(
    title: str, roofs: Sequence[Roof], lines: Sequence[Line], caption: str = ""
) -> Plot:
    """Roofs of at least one; points of `lines` are (operations per byte, operations/s)."""
    spots: list[Point] = [point for line in lines for point in line.points]
    ridges = [roof.ridge for roof in roofs]
    x = logarithmic(
        [min(ridges) / 4, max(ridges) * 4, *(spot.x for spot in spots)],
        frame.LEFT, WIDTH - frame.RIGHT,
    )  # fmt: skip
    tops = [value for roof in roofs for value in (roof.at(x.low), roof.operations_per_s * 1.2)]
    y = logarithmic([*tops, *(spot.y for spot in spots)], HEIGHT - frame.BOTTOM, frame.TOP)
    parts = frame.axes(
        x, y, "operations per byte moved, logarithmic", "operations/s, logarithmic",
        x_label=compact, y_label=compact,
    )  # fmt: skip
    looks: tuple[str | None, ...] = (None, "5 4", "2 3")
    keys: list[Key] = []
    for place, roof in enumerate(roofs):
        key = Key(roof.name, "ink2", looks[place % len(looks)])
        keys.append(key)
        told = f"{roof.name}: ridge at {figure(roof.ridge)} operations per byte"
        corners = [x.low, roof.ridge, x.high]
        parts.append(frame.curve([(x.at(a), y.at(roof.at(a))) for a in corners], key, title=told))
    for line in lines:
        keys.append(line.key)
        if len(line.points) > 1:
            parts.append(frame.curve([(x.at(p.x), y.at(p.y)) for p in line.points], line.key))
    for line in lines:
        for point in line.points:
            parts += dot(point, line.key, x, y)
    return Plot(
        title=title,
        svg=frame.svg(WIDTH, HEIGHT, title, parts),
        caption=caption,
        keys=tuple(keys),
    )
