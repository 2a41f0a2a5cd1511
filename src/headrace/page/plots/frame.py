"""What all plots share: the frame with its axes, lines with names, and the element around them.

Colours are variables of the page (`--c1` … `--c6`, `--ink`, `--grid`), so that one plot serves both
colour schemes and paper. A curve's class says which clock it belongs to; the page's buttons hide
by class. Text never takes a curve's colour, a mark beside it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.page.markup import Markup, join, shortest, tag
from headrace.page.plots.scale import Scale

LEFT, RIGHT, TOP, BOTTOM = 72, 26, 14, 44
"""Room around the axes, in pixels: for numbers on the left, for numbers and a title below."""

_CHARACTER = 6.3
"""Width of a character of a legend, on the generous side: fonts differ between viewers."""


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend. colour: of the page's variables. dash: of its line."""

    name: str
    colour: str
    dash: str | None = None
    class_: str | None = None
    mark: Literal["line", "dot", "cross"] = "line"


_LOOKS = (
    ("c1", None),
    ("c2", "6 3"),
    ("c3", "2 3"),
    ("c4", "9 3 2 3"),
    ("c5", "4 2"),
    ("c6", "1 3"),
)


def key_at(place: int, name: str) -> Key:
    """Of one of several curves: dashes tell them apart as well as colours; six, then again."""
    return Key(name, *_LOOKS[place % len(_LOOKS)])


@dataclass(frozen=True, slots=True)
class Plot:
    """A finished plot with what is written around it."""

    title: str
    svg: Markup
    caption: str = ""
    keys: tuple[Key, ...] = ()
    wide: bool = False

    @property
    def markup(self) -> Markup:
        parts = [tag("h3", self.title)]
        if len(self.keys) > 1:
            parts.append(legend(self.keys))
        parts.append(self.svg)
        if self.caption:
            parts.append(tag("figcaption", self.caption))
        return tag("figure", *parts, class_="wide" if self.wide else None)


def legend(keys: Sequence[Key]) -> Markup:
    """Names with a piece of what they name; outside the plot, where it covers nothing."""
    entries = []
    for key in keys:
        piece = tag("svg", _piece(key), width=22, height=10, aria_hidden="true")
        entries.append(tag("span", piece, f" {key.name}", class_=key.class_))
    return tag("p", *entries, class_="legend")


def _piece(key: Key) -> Markup:
    colour = f"var(--{key.colour})"
    if key.mark == "dot":
        return tag("circle", cx=11, cy=5, r=4, fill=colour)
    if key.mark == "cross":
        return tag("path", d="M8 2l6 6m0 -6l-6 6", stroke=colour, stroke_width=2)
    return tag("path", d="M0 5H22", stroke=colour, stroke_width=3, stroke_dasharray=key.dash)


def within(limit: float | None, values: Sequence[float]) -> float | None:
    """A limit, where the values come near enough to be seen beside it; `beyond` says it else."""
    if limit is None or limit > 2 * max(values, default=0.0) or limit < 0.5 * min(values):
        return None
    return limit


def beyond(limit: float | None, values: Sequence[float], name: str) -> str:
    """For a caption, where the limit is not drawn."""
    if limit is None or within(limit, values) is not None:
        return ""
    return f"{name} lies outside the plot."


def svg(width: int, height: int, label: str, parts: Sequence[str]) -> Markup:
    """The element itself. label: what it shows, for those who cannot see it."""
    return tag(
        "svg",
        join(parts),
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=label,
    )


def axes(
    x: Scale,
    y: Scale,
    x_title: str,
    y_title: str,
    *,
    x_label: Callable[[float], str],
    y_label: Callable[[float], str],
    x_ticks: int = 7,
    y_ticks: int = 6,
) -> list[Markup]:
    """Grid, numbers and titles. The y axis runs upwards: its start is below its end."""
    bottom, top = y.start, y.end
    rules = [f"M{shortest(x.start)} {shortest(y.at(tick))}H{shortest(x.end)}" for tick in y.ticks()]
    rules += [f"M{shortest(x.at(tick))} {shortest(bottom)}V{shortest(top)}" for tick in x.ticks()]
    parts = [tag("path", d="".join(rules), class_="grid")]
    parts.append(
        tag("path", d=f"M{shortest(x.start)} {shortest(bottom)}H{shortest(x.end)}", class_="axis")
    )
    parts += [
        tag("text", x_label(tick), x=x.at(tick), y=bottom + 17, text_anchor="middle")
        for tick in x.ticks(x_ticks)
    ]
    parts += [
        tag("text", y_label(tick), x=x.start - 7, y=y.at(tick) + 4, text_anchor="end")
        for tick in y.ticks(y_ticks)
    ]
    middle = (top + bottom) / 2
    parts.append(tag("text", x_title, x=(x.start + x.end) / 2, y=bottom + 36, text_anchor="middle"))
    parts.append(
        tag("text", y_title, transform=f"translate(13 {middle:.0f}) rotate(-90)", class_="title")
    )
    return parts


def curve(spots: Sequence[tuple[float, float]], key: Key, *, title: str = "") -> Markup:
    """A line through places in pixels, with the look of its key."""
    if not spots:
        return Markup("")
    d = "M" + "L".join(f"{shortest(a)} {shortest(b)}" for a, b in spots)
    return tag(
        "path",
        *([tag("title", title)] if title else []),
        d=d,
        class_=" ".join(filter(None, ("curve", key.class_))),
        stroke=f"var(--{key.colour})",
        stroke_dasharray=key.dash,
    )


def crosses(places: Sequence[float], y: Scale) -> str:
    """The path of small crosses at places in pixels, at the foot of the plot."""
    foot = shortest(y.start - 9)
    return "".join(f"M{shortest(place - 3)} {foot}l6 6m0 -6l-6 6" for place in places)


def limit_across(x: Scale, y: Scale, value: float, name: str) -> list[Markup]:
    """A limit on the y axis; none where it lies outside."""
    if not y.low <= value <= y.high:
        return []
    at = y.at(value)
    return [
        tag("line", x1=x.start, y1=at, x2=x.end, y2=at, class_="limit"),
        tag("text", name, x=x.start + 5, y=at - 5, class_="note"),
    ]


def limit_upright(x: Scale, y: Scale, value: float, name: str) -> list[Markup]:
    """A limit on the x axis; none where it lies outside."""
    if not x.low <= value <= x.high:
        return []
    at = x.at(value)
    right = at + len(name) * _CHARACTER < x.end
    return [
        tag("line", x1=at, y1=y.start, x2=at, y2=y.end, class_="limit"),
        tag(
            "text",
            name,
            x=at + (4 if right else -4),
            y=y.start - 8,
            text_anchor=None if right else "end",
            class_="note",
        ),
    ]
