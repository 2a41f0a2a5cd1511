"""A plot of every provider over the rounds, in wall-clock time.

A line breaks where a visit gave no figure, and a cross at the foot marks visits of which nothing or
not all succeeded: an outage is no straight line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from headrace.page.markup import Markup, join, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import Scale, suited

WIDTH, HEIGHT = 1080, 300
MOST_DOTS = 400
"""Of all lines together: beyond it dots are a smear."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_STEPS_S = (
    *(1, 5, 10, 30),
    *(_MINUTE * one for one in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * one for one in (1, 2, 3, 6, 12)),
    *(_DAY * one for one in (1, 2, 7, 14, 28, 91, 364)),
)


@dataclass(frozen=True, slots=True)
class Place:
    """One visit. value: None where it gave none. failed: whether any request of it did."""

    at: float
    value: float | None
    failed: bool
    told: str


@dataclass(frozen=True, slots=True)
class ClockScale(Scale):
    """Seconds since the epoch; ticks are whole minutes, hours or days of the clock on the wall."""

    zone: tzinfo | None = None

    def ticks(self, most: int = 6) -> list[float]:
        """At most about so many, none outside."""
        span = self.high - self.low
        step = next((one for one in _STEPS_S if one * most >= span), _STEPS_S[-1])
        offset = moment(self.low, self.zone).utcoffset()
        ahead = 0.0 if offset is None else offset.total_seconds()
        first = math.ceil((self.low + ahead) / step) * step - ahead
        return [first + at * step for at in range(int((self.high - first) // step) + 1)]

    def label(self, at: float) -> str:
        """As short as tells the ticks apart."""
        span = self.high - self.low
        form = "%m-%d" if span > 8 * _DAY else "%m-%d %H:%M" if span > _DAY else "%H:%M"
        return moment(at, self.zone).strftime(form if span > 600 else "%H:%M:%S")


def moment(at: float, zone: tzinfo | None) -> datetime:
    """Seconds since the epoch on the wall's clock; None: of this machine."""
    return datetime.fromtimestamp(at, UTC).astimezone(zone)


def over_rounds(
    title: str,
    lines: Sequence[tuple[Key, Sequence[Place]]],
    *,
    zone: tzinfo | None,
    y_title: str,
    y_label: Callable[[float], str],
) -> Plot | None:
    """None where no line has two figures."""
    if not any(sum(one.value is not None for one in places) > 1 for _, places in lines):
        return None
    ends = [one.at for _, places in lines for one in places]
    x = ClockScale(min(ends), max(ends), frame.LEFT, WIDTH - frame.RIGHT, zone=zone)
    values = [one.value for _, places in lines for one in places if one.value is not None]
    y = suited(values, HEIGHT - frame.BOTTOM, frame.TOP)
    name = y_title + (", logarithmic" if y.logarithmic else "")
    parts = frame.axes(
        x, y, _zone_name(ends[0], zone), name, x_label=x.label, y_label=y_label, x_ticks=9
    )
    dots = sum(len(places) for _, places in lines) <= MOST_DOTS
    for key, places in lines:
        parts += _line(key, places, x, y, y_label, dots=dots)
    crosses = any(one.failed for _, places in lines for one in places)
    keys = [key for key, _ in lines]
    return Plot(
        title=title,
        svg=frame.svg(WIDTH, HEIGHT, f"{title} of each provider over time", parts),
        caption="Crosses at the foot: rounds in which requests failed." if crosses else "",
        keys=tuple(keys),
        wide=True,
    )


def _line(
    key: Key,
    places: Sequence[Place],
    x: Scale,
    y: Scale,
    y_label: Callable[[float], str],
    *,
    dots: bool,
) -> list[Markup]:
    parts: list[Markup] = []
    for piece in _pieces(places):
        spots = [(x.at(at), y.at(value)) for at, value in piece]
        parts.append(frame.curve(spots, key, title=key.name))
    if dots:
        marks = [
            tag(
                "circle",
                tag("title", f"{key.name}, {one.told}: {y_label(one.value)}"),
                cx=x.at(one.at),
                cy=y.at(one.value),
                r=3.5,
                class_="dot",
            )
            for one in places
            if one.value is not None
        ]
        parts.append(tag("g", *marks, fill=f"var(--{key.colour})"))
    failed = [one for one in places if one.failed]
    if failed:
        d = frame.crosses([x.at(one.at) for one in failed], y)
        cross = tag("path", tag("title", f"{key.name}: requests failed"), d=d, fill="none",
                    stroke=f"var(--{key.colour})", stroke_width=1.6)  # fmt: skip
        parts.append(cross)
    return [join(parts)]


def _pieces(places: Sequence[Place]) -> list[list[tuple[float, float]]]:
    """Runs of visits with a figure; what was paused or failed lies between them."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for one in places:
        if one.value is None:
            pieces.append([])
        else:
            pieces[-1].append((one.at, one.value))
    return [piece for piece in pieces if len(piece) > 1]


def _zone_name(at: float, zone: tzinfo | None) -> str:
    return moment(at, zone).strftime("%Y, %Z")
