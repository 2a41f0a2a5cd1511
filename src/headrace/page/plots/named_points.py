"""Points that have names: which thing has much of one quality for how much of another.

Names stand beside their points where there is room and are left out where there is none; pointing
at a point tells its name in any case, and the caption says how many have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.page.markup import Markup, shortest, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import Scale

WIDTH, HEIGHT = 1080, 460
_CHARACTER, _LINE, _GAP, _RADIUS = 6.6, 14.0, 6.0, 4.0


@dataclass(frozen=True, slots=True)
class NamedPoint:
    """A point. span: from and to on the y axis, where that is a range. about: on pointing at it."""

    name: str
    x: float
    y: float
    about: str = ""
    span: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Points of one colour."""

    key: Key
    points: Sequence[NamedPoint]


@dataclass(frozen=True, slots=True)
class Slope:
    """A line of equal y / x."""

    ratio: float
    name: str


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def named_points(
    title: str,
    groups: Sequence[Group],
    x: Callable[[Sequence[float], float, float], Scale],
    y: Callable[[Sequence[float], float, float], Scale],
    *,
    x_title: str,
    y_title: str,
    x_label: Callable[[float], str],
    y_label: Callable[[float], str],
    slopes: Sequence[Slope] = (),
    caption: str = "",
) -> Plot | None:
    """x, y: make an axis of values between two ends. None where there are no points."""
    drawn = [group for group in groups if group.points]
    if not drawn:
        return None
    points = [point for group in drawn for point in group.points]
    heights = [end for point in points for end in (point.span or (point.y, point.y))]
    along = x([point.x for point in points], frame.LEFT, WIDTH - frame.RIGHT)
    up = y(heights, HEIGHT - frame.BOTTOM, frame.TOP)
    names = [f"{name}, logarithmic" if scale.logarithmic else name
             for name, scale in ((x_title, along), (y_title, up))]  # fmt: skip
    parts = frame.axes(along, up, *names, x_label=x_label, y_label=y_label, x_ticks=12)
    taken = [_Box(a - 5, b - 5, a + 5, b + 5)
             for a, b in ((along.at(point.x), up.at(point.y)) for point in points)]  # fmt: skip
    for slope in slopes:
        parts += _slope(slope, along, up, taken)
    nameless = 0
    for group in drawn:
        parts += [_mark(point, group.key, along, up) for point in group.points]
    for group in drawn:
        for point in group.points:
            label = _label(point, along, up, taken)
            nameless += label is None
            parts += [] if label is None else [label]
    left_out = (
        f"{nameless} of {len(points)} points have no room for their names; point at them."
        if nameless
        else ""
    )
    return Plot(
        title=title,
        svg=frame.svg(WIDTH, HEIGHT, title, parts),
        caption=" ".join(filter(None, (caption, left_out))),
        keys=tuple(replace(group.key, mark="dot") for group in drawn),
        wide=True,
    )


def _mark(point: NamedPoint, key: Key, x: Scale, y: Scale) -> Markup:
    across, up = x.at(point.x), y.at(point.y)
    parts = [tag("title", ": ".join(filter(None, (point.name, point.about))))]
    if point.span is not None:
        ends = [shortest(y.at(end)) for end in point.span]
        parts.append(
            tag(
                "path",
                d=f"M{shortest(across)} {ends[0]}V{ends[1]}",
                stroke=f"var(--{key.colour})",
                stroke_width=2,
            )
        )
    parts.append(
        tag("circle", cx=across, cy=up, r=_RADIUS, class_="dot", fill=f"var(--{key.colour})")
    )
    return tag("g", *parts)


def _label(point: NamedPoint, x: Scale, y: Scale, taken: list[_Box]) -> Markup | None:
    """The name at the first place beside the point that is free; takes the place."""
    across, up = x.at(point.x), y.at(point.y)
    width = len(point.name) * _CHARACTER
    for left, base, anchor in _places(across, up, width):
        box = _Box(left, base - _LINE + 3, left + width, base + 3)
        inside = box.left > x.start and box.right < x.end + frame.RIGHT and box.top > 0
        if inside and box.bottom < y.start and not any(box.meets(other) for other in taken):
            taken.append(box)
            at = {"start": left, "middle": left + width / 2, "end": left + width}[anchor]
            return tag("text", point.name, x=at, y=base, text_anchor=anchor, class_="name")
    return None


def _places(across: float, up: float, width: float) -> Iterator[tuple[float, float, str]]:
    """Left end, base line and anchor: right, left, above, below, then aslant."""
    yield across + _GAP + 2, up + 4, "start"
    yield across - _GAP - 2 - width, up + 4, "end"
    yield across - width / 2, up - _GAP - 2, "middle"
    yield across - width / 2, up + _GAP + 10, "middle"
    for down in (-9, 17, -16, 24):
        yield across + _GAP, up + down, "start"
        yield across - _GAP - width, up + down, "end"


def _slope(slope: Slope, x: Scale, y: Scale, taken: list[_Box]) -> list[Markup]:
    """A line of equal ratio within the plot, named where it ends."""
    low = max(x.low, y.low / slope.ratio)
    high = min(x.high, y.high / slope.ratio)
    if low >= high:
        return []
    ends = [(x.at(end), y.at(end * slope.ratio)) for end in (low, high)]
    (a, b), (c, d) = ends
    width = len(slope.name) * _CHARACTER
    at = (min(c, x.end) - 6, max(d, y.end) + 12)
    taken.append(_Box(at[0] - width, at[1] - _LINE + 3, at[0], at[1] + 3))
    line = f"M{shortest(a)} {shortest(b)}L{shortest(c)} {shortest(d)}"
    return [
        tag("path", d=line, class_="limit", fill="none"),
        tag("text", slope.name, x=at[0], y=at[1], text_anchor="end", class_="name"),
    ]
