"""A roofline plot as SVG: operations per second over operations per byte, both logarithmic.

The roof is min(peak, bandwidth * intensity); a point's distance below it is what is left to gain.
Williams, Waterman, Patterson: Roofline (CACM 2009). One self-contained file, no library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 56, 60
_MARKS = ("#1b6ca8", "#c8553d", "#3c887e", "#8a5a9e", "#b08900", "#555555")
_LABEL_HEIGHT = 15


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


def roofline_svg(
    points: Sequence[Point], *, bytes_per_s: float, ops_per_s: float, title: str, kind: str
) -> str:
    """The plot of `points` under one roof. All figures above 0; at least one point."""
    ridge = ops_per_s / bytes_per_s
    across = [ridge, *(point.intensity for point in points)]
    x = _Axis(*_decades(across), _LEFT, _WIDTH - _RIGHT)
    heights = [ops_per_s, *(point.ops_per_s for point in points)]
    y = _Axis(*_decades(heights), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="26" font-size="16">{escape(title)}</text>',
        *_grid(x, y),
        *_roof(x, y, ridge, bytes_per_s, ops_per_s, kind),
        *_points(x, y, points, bytes_per_s, ops_per_s),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    # A value on the edge would lie on the frame.
    return low - (min(values) <= 10.0**low * 1.3), high + (max(values) >= 10.0**high / 1.3)


def _grid(x: _Axis, y: _Axis) -> list[str]:
    parts = []
    for decade in range(x.low, x.high + 1):
        at = x.at(10.0**decade)
        parts.append(
            f'<line x1="{at:.1f}" y1="{y.start}" x2="{at:.1f}" y2="{y.end}" stroke="#e4e4e4"/>'
            f'<text x="{at:.1f}" y="{y.start + 18}" text-anchor="middle">{10.0**decade:g}</text>'
        )
    for decade in range(y.low, y.high + 1):
        at = y.at(10.0**decade)
        parts.append(
            f'<line x1="{x.start}" y1="{at:.1f}" x2="{x.end}" y2="{at:.1f}" stroke="#e4e4e4"/>'
            f'<text x="{x.start - 8}" y="{at + 4:.1f}" text-anchor="end">'
            f"{10.0 ** (decade - 9):g}</text>"
        )
    middle = (x.start + x.end) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 14}" text-anchor="middle">operations per byte</text>'
        f'<text transform="translate(18 {(y.start + y.end) / 2}) rotate(-90)" '
        f'text-anchor="middle">GOPS</text>'
    )
    return parts


def _roof(
    x: _Axis, y: _Axis, ridge: float, bytes_per_s: float, ops_per_s: float, kind: str
) -> list[str]:
    """Bandwidth from the frame up to the ridge, then the peak."""
    start = max(10.0**x.low, 10.0**y.low / bytes_per_s)
    corners = [(start, start * bytes_per_s), (ridge, ops_per_s), (10.0**x.high, ops_per_s)]
    line = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in corners)
    return [
        f'<polyline points="{line}" fill="none" stroke="#222" stroke-width="2"/>',
        f'<text x="{x.end - 6}" y="{y.at(ops_per_s) - 8:.1f}" text-anchor="end">'
        f"{kind} peak {ops_per_s / 1e9:,.0f} GOPS, read {bytes_per_s / 1e9:,.1f} GB/s, "
        f"ridge {ridge:.1f}</text>",
    ]


def _points(
    x: _Axis, y: _Axis, points: Sequence[Point], bytes_per_s: float, ops_per_s: float
) -> list[str]:
    parts = []
    taken: list[tuple[float, float]] = []
    for index, point in enumerate(points):
        color = _MARKS[index % len(_MARKS)]
        at = (x.at(point.intensity), y.at(point.ops_per_s))
        share = point.ops_per_s / min(ops_per_s, bytes_per_s * point.intensity)
        left = at[0] > (x.start + x.end) / 2
        label = at[1] + 4
        while any(abs(label - b) < _LABEL_HEIGHT and abs(at[0] - a) < 220 for a, b in taken):
            label += _LABEL_HEIGHT
        taken.append((at[0], label))
        parts.append(
            f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4.5" fill="{color}"/>'
            f'<text x="{at[0] + (-9 if left else 9):.1f}" y="{label:.1f}" fill="{color}" '
            f'text-anchor="{"end" if left else "start"}">'
            f"{escape(point.name)} ({share:.0%} of the roof)</text>"
        )
    return parts
