"""A roofline plot as SVG: operations per second over operations per byte, both logarithmic.

The roof is min(peak, bandwidth * intensity); a point's distance below it is what is left to gain.
Williams, Waterman, Patterson: Roofline (CACM 2009). One self-contained file, no library. Points
are numbered in the plot and named beside it, so that no name covers a line or another name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _LEAST_HEIGHT = 1040, 520
_LEFT, _TOP, _BOTTOM = 84, 56, 60
_PLOT_RIGHT, _LEGEND = 660, 688
_ROW = 22
_CHARACTER = 7.0
"""Width of a character at this size, on the generous side: fonts differ between viewers."""
_MARKS = ("#1b6ca8", "#c8553d", "#3c887e", "#8a5a9e", "#b08900", "#555555")
_AROUND = (45, 0, 315, 90, 270, 135, 180, 225)
"""Directions in which a number may be printed beside its point, in degrees, the best first."""


class Point(NamedTuple):
    """A measured case. intensity: operations per byte."""

    name: str
    intensity: float
    ops_per_s: float


class _Axis(NamedTuple):
    """Decades [low, high) on [start, end) of the page."""

    low: int
    high: int
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


_Spot = tuple[float, float]


class _Taken:
    """Spots of the plot that are drawn on, each with a radius."""

    def __init__(self, x: _Axis, y: _Axis) -> None:
        self._frame = (x, y)
        self._spots: list[tuple[float, float, float]] = []

    def add(self, spots: Iterable[_Spot], radius: float) -> None:
        self._spots += [(*spot, radius) for spot in spots]

    def is_free(self, spots: Iterable[_Spot], radius: float) -> bool:
        x, y = self._frame
        return all(
            x.start < a < x.end
            and y.end < b < y.start
            and all(math.hypot(a - c, b - d) >= radius + r for c, d, r in self._spots)
            for a, b in spots
        )


def roofline_svg(
    points: Sequence[Point],
    *,
    bytes_per_s: float,
    ops_per_s: float,
    title: str,
    kind: str,
    notes: Sequence[str] = (),
) -> str:
    """The plot of `points` under one roof. All figures above 0; at least one point.

    notes: short lines below the list of points.
    """
    height = max(_LEAST_HEIGHT, _TOP + _ROW * (len(points) + len(notes) + 3) + _BOTTOM)
    ridge = ops_per_s / bytes_per_s
    across = [ridge, *(point.intensity for point in points)]
    x = _Axis(*_decades(across), _LEFT, _PLOT_RIGHT)
    heights = [ops_per_s, *(point.ops_per_s for point in points)]
    y = _Axis(*_decades(heights), height - _BOTTOM, _TOP)
    taken = _Taken(x, y)
    taken.add(((x.at(point.intensity), y.at(point.ops_per_s)) for point in points), 6)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="30" font-size="16">{escape(title)}</text>',
        *_grid(x, y),
        *_roof(x, y, ridge, bytes_per_s, ops_per_s, kind, taken),
        *_points(x, y, points, taken),
        *_legend(points, bytes_per_s, ops_per_s, notes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    # A value on the edge would lie on the frame.
    return low - (min(values) <= 10.0**low * 1.3), high + (max(values) >= 10.0**high / 1.3)


def _grid(x: _Axis, y: _Axis) -> list[str]:
    parts = []
    for axis in (x, y):
        for decade in range(axis.low, axis.high):
            for step in (2, 5):
                parts.append(_grid_line(axis, axis.at(step * 10.0**decade), x, y, "#f3f3f3"))
        for decade in range(axis.low, axis.high + 1):
            parts.append(_grid_line(axis, axis.at(10.0**decade), x, y, "#dcdcdc"))
    for decade in range(x.low, x.high + 1):
        parts.append(
            f'<text x="{x.at(10.0**decade):.1f}" y="{y.start + 18}" '
            f'text-anchor="middle">{10.0**decade:,g}</text>'
        )
    for decade in range(y.low, y.high + 1):
        parts.append(
            f'<text x="{x.start - 8}" y="{y.at(10.0**decade) + 4:.1f}" text-anchor="end">'
            f"{10.0 ** (decade - 9):,g}</text>"
        )
    parts.append(
        f'<text x="{(x.start + x.end) / 2}" y="{y.start + 44}" text-anchor="middle">'
        f"operations per byte moved</text>"
        f'<text transform="translate(22 {(y.start + y.end) / 2}) rotate(-90)" '
        f'text-anchor="middle">GOPS (10⁹ operations per second)</text>'
    )
    return parts


def _grid_line(axis: _Axis, at: float, x: _Axis, y: _Axis, color: str) -> str:
    ends = (at, y.start, at, y.end) if axis is x else (x.start, at, x.end, at)
    x1, y1, x2, y2 = (f"{end:.1f}" for end in ends)
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}"/>'


def _roof(
    x: _Axis,
    y: _Axis,
    ridge: float,
    bytes_per_s: float,
    ops_per_s: float,
    kind: str,
    taken: _Taken,
) -> list[str]:
    """Bandwidth from the frame up to the ridge, then the peak; each with its figure beside it."""
    start = max(10.0**x.low, 10.0**y.low / bytes_per_s)
    corners = [(start, start * bytes_per_s), (ridge, ops_per_s), (10.0**x.high, ops_per_s)]
    low, knee, end = ((x.at(a), y.at(b)) for a, b in corners)
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in (low, knee, end))
    read, peak = f"read {bytes_per_s / 1e9:,.1f} GB/s", f"{kind} peak {ops_per_s / 1e9:,.0f} GOPS"
    labels = [
        _along(low, knee, read, (0.5, 0.3, 0.7), taken),
        _along(knee, end, peak, (0.6, 0.8, 0.4, 0.3), taken),
    ]
    taken.add(_between(low, knee), 2)
    taken.add(_between(knee, end), 2)
    return [
        f'<line x1="{knee[0]:.1f}" y1="{knee[1]:.1f}" x2="{knee[0]:.1f}" y2="{y.start}" '
        f'stroke="#999" stroke-dasharray="3 4"/>'
        f'<text x="{knee[0] - 6:.1f}" y="{y.start - 8}" text-anchor="end" fill="#555">'
        f"ridge {ridge:.1f}</text>",
        f'<polyline points="{line}" fill="none" stroke="#222" stroke-width="2"/>',
        *labels,
    ]


def _along(start: _Spot, end: _Spot, text: str, shares: Sequence[float], taken: _Taken) -> str:
    """A label beside a line: above it at the first share of its length that is free, or below."""
    length = math.hypot(end[0] - start[0], end[1] - start[1])
    across = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    half = len(text) * _CHARACTER / 2
    places = []
    for offset in (-12.0, 16.0):
        for share in shares:
            middle = (
                start[0] + share * (end[0] - start[0]) - offset * across[1],
                start[1] + share * (end[1] - start[1]) + offset * across[0],
            )
            first = (middle[0] - half * across[0], middle[1] - half * across[1])
            last = (middle[0] + half * across[0], middle[1] + half * across[1])
            places.append((middle, _between(first, last)))
    free = (place for place in places if taken.is_free(place[1], 7))
    middle, spots = next(free, places[0])
    taken.add(spots, 7)
    angle = math.degrees(math.atan2(across[1], across[0]))
    return (
        f'<text transform="translate({middle[0]:.1f} {middle[1]:.1f}) rotate({angle:.1f})" '
        f'dy="4" text-anchor="middle">{escape(text)}</text>'
    )


def _between(start: _Spot, end: _Spot) -> list[_Spot]:
    """Spots on a straight line, close enough that nothing passes between them."""
    count = max(1, math.ceil(math.hypot(end[0] - start[0], end[1] - start[1]) / 6))
    steps = (index / count for index in range(count + 1))
    return [
        (start[0] + step * (end[0] - start[0]), start[1] + step * (end[1] - start[1]))
        for step in steps
    ]


def _points(x: _Axis, y: _Axis, points: Sequence[Point], taken: _Taken) -> list[str]:
    parts = []
    for index, point in enumerate(points):
        color = _MARKS[index % len(_MARKS)]
        at = (x.at(point.intensity), y.at(point.ops_per_s))
        places = [
            (
                at[0] + distance * math.cos(math.radians(degrees)),
                at[1] + distance * math.sin(math.radians(degrees)),
            )
            for distance in (14, 22, 30, 38)
            for degrees in _AROUND
        ]
        place = next((one for one in places if taken.is_free([one], 6)), places[0])
        taken.add([place], 7)
        parts.append(
            f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4.5" fill="{color}"/>'
            f'<text x="{place[0]:.1f}" y="{place[1] + 4:.1f}" fill="{color}" '
            f'text-anchor="middle" font-weight="bold">{index + 1}</text>'
        )
    return parts


def _legend(
    points: Sequence[Point], bytes_per_s: float, ops_per_s: float, notes: Sequence[str]
) -> list[str]:
    """The points by number: name, operations per second, share of the roof above each."""
    right = _WIDTH - 24
    columns = [(_LEGEND + 24, "start"), (right - 84, "end"), (right, "end")]

    def row(line: int, cells: Sequence[str], color: str) -> str:
        return "".join(
            f'<text x="{at}" y="{_TOP + 12 + line * _ROW}" text-anchor="{anchor}" '
            f'fill="{color}">{escape(cell)}</text>'
            for (at, anchor), cell in zip(columns, cells, strict=True)
        )

    parts = [row(0, ("test", "GOPS", "of the roof"), "#555")]
    for index, point in enumerate(points):
        share = point.ops_per_s / min(ops_per_s, bytes_per_s * point.intensity)
        gops = point.ops_per_s / 1e9
        figure = f"{gops:,.0f}" if gops >= 100 else f"{gops:.3g}"
        parts.append(
            f'<text x="{_LEGEND}" y="{_TOP + 12 + (index + 1) * _ROW}" font-weight="bold" '
            f'fill="{_MARKS[index % len(_MARKS)]}">{index + 1}</text>'
            + row(index + 1, (point.name, figure, f"{share:.0%}"), "#222")
        )
    for index, note in enumerate(notes):
        line = _TOP + 12 + (len(points) + 2 + index) * _ROW
        parts.append(f'<text x="{_LEGEND}" y="{line}" fill="#555">{escape(note)}</text>')
    return parts
