"""Lines through points over an axis, each point with its words: curves of a plan or a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.page.markup import Markup, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import Scale, linear, logarithmic

WIDTH, HEIGHT = 520, 320


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a curve."""

    x: float
    y: float
    told: str = ""
    """Text of the tooltip."""
    label: str = ""
    """Beside the point."""
    hollow: bool = False
    """Drawn hollow, for a point that is not available."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that joins its points in their order."""

    key: Key
    points: Sequence[Point]
    dots: bool = True


@dataclass(frozen=True, slots=True)
class Axis:
    """The quantity of an axis and the form of its numbers; the title states that an axis is
    logarithmic."""

    title: str
    label: Callable[[float], str]
    logarithmic: bool = False

    def scale(self, values: Sequence[float], start: float, end: float) -> Scale:
        """Around the values."""
        make = logarithmic if self.logarithmic else linear
        return make(values, start, end)

    @property
    def full_title(self) -> str:
        return self.title + (", logarithmic" if self.logarithmic else "")


def lines_plot(
    title: str,
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    across: Sequence[tuple[float, str]] = (),
    upright: Sequence[tuple[float, str]] = (),
    caption: str = "",
    wide: bool = False,
) -> Plot | None:
    """None where no line has two points.

    across, upright: limits on the y and the x axis with their names; the axes reach them.
    """
    drawn = [line for line in lines if len(line.points) > 1]
    if not drawn:
        return None
    width = 1080 if wide else WIDTH
    xs = [point.x for line in drawn for point in line.points] + [value for value, _ in upright]
    ys = [point.y for line in drawn for point in line.points] + [value for value, _ in across]
    along = x.scale(xs, frame.LEFT, width - frame.RIGHT)
    up = y.scale(ys, HEIGHT - frame.BOTTOM, frame.TOP)
    parts = frame.axes(along, up, x.full_title, y.full_title, x_label=x.label, y_label=y.label)
    for value, name in across:
        parts += frame.limit_across(along, up, value, name)
    for value, name in upright:
        parts += frame.limit_upright(along, up, value, name)
    for line in drawn:
        places = [(along.at(point.x), up.at(point.y)) for point in line.points]
        parts.append(frame.curve(places, line.key, title=line.key.name))
    for line in drawn:  # above every line
        for point in line.points if line.dots else ():
            parts += dot(point, line.key, along, up)
    return Plot(
        title=title,
        svg=frame.svg(width, HEIGHT, title, parts),
        caption=caption,
        keys=tuple(line.key for line in drawn),
        wide=wide,
    )


def dot(point: Point, key: Key, x: Scale, y: Scale) -> list[Markup]:
    """A mark with its tooltip, and its label above it."""
    colour = f"var(--{key.colour})"
    look = (
        {"fill": "var(--card)", "stroke": colour, "stroke_width": 1.5}
        if point.hollow
        else {"fill": colour, "class_": "dot"}
    )
    at = x.at(point.x), y.at(point.y)
    told = [tag("title", point.told)] if point.told else []
    parts = [tag("circle", *told, cx=at[0], cy=at[1], r=4, **look)]
    if point.label:
        parts.append(
            tag("text", point.label, x=at[0], y=at[1] - 8, text_anchor="middle", class_="note")
        )
    return parts
