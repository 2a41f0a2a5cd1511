"""Gaps between chunks over time as a heat map: where a stall hit many streams, a bright row shows.

Each column is a slice of time, each cell the number of gaps of that length which ended in it; the
colours go by the logarithm of the number, for one stall is to be seen beside a thousand short gaps.
"""

from __future__ import annotations

import math

import numpy as np

from headrace.bench.report.plots.cdf import LEAST_MS
from headrace.bench.report.plots.over_time import time_axis
from headrace.bench.statistics import Samples
from headrace.page.figures import compact, count, duration
from headrace.page.markup import Markup, shortest, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Plot
from headrace.page.plots.scale import Scale, logarithmic

WIDTH, HEIGHT = 1080, 320
COLUMNS, ROWS, LEVELS = 120, 36, 7


def heat_map(
    at_s: Samples, gaps_ms: Samples, span_s: tuple[float, float], *, limit_ms: float | None = None
) -> Plot | None:
    """None without gaps."""
    if not gaps_ms.size:
        return None
    heights = np.maximum(gaps_ms, LEAST_MS)
    x = time_axis(span_s, frame.LEFT, WIDTH - frame.RIGHT)
    ends = [float(heights.min()), float(heights.max())]
    y = logarithmic(ends, HEIGHT - frame.BOTTOM - 26, frame.TOP)
    columns = np.clip(((at_s - span_s[0]) / x.high * COLUMNS).astype(int), 0, COLUMNS - 1)
    rise = np.log(heights / y.low) / math.log(y.high / y.low)
    rows = np.clip((rise * ROWS).astype(int), 0, ROWS - 1)
    numbers = np.zeros((COLUMNS, ROWS), dtype=np.int64)
    np.add.at(numbers, (columns, rows), 1)
    parts = [
        *_cells(numbers, x, y),
        *frame.axes(
            x,
            y,
            "seconds of the run",
            "gap, logarithmic",
            x_label=compact,
            y_label=duration,
            x_ticks=12,
        ),
        *_columns(columns, gaps_ms, x, y),
        *_scale(int(numbers.max())),
    ]
    if limit_ms is not None and y.low <= limit_ms <= y.high:
        parts += frame.limit_across(x, y, limit_ms, f"SLO {duration(limit_ms)}")
    return Plot(
        title="Gaps between chunks (ITL) over time",
        svg=frame.svg(WIDTH, HEIGHT, "Heat map of the gaps between chunks over time", parts),
        caption=(
            f"{count(gaps_ms.size)} gaps between content chunks of completed streams in "
            f"{COLUMNS} slices of time; colour is the logarithm of their number."
        ),
        wide=True,
    )


def _level(number: int, most: int) -> int:
    """1 … LEVELS for a number from 1 to `most`."""
    if most <= 1:
        return LEVELS
    return 1 + min(LEVELS - 1, int(math.log(number) / math.log(most) * LEVELS))


def _cells(
    numbers: np.ndarray[tuple[int, int], np.dtype[np.int64]], x: Scale, y: Scale
) -> list[Markup]:
    """One path for all cells of a colour, which is a tenth of an element for each."""
    wide, high = (x.end - x.start) / COLUMNS, (y.start - y.end) / ROWS
    most = int(numbers.max())
    # A little wider than the cell, so that no seams show between neighbours.
    outline = f"h{wide + 0.3:.1f}v{-high - 0.3:.1f}h{-wide - 0.3:.1f}z"
    paths: dict[int, list[str]] = {}
    for column, row in np.argwhere(numbers):
        level = _level(int(numbers[column, row]), most)
        left, foot = x.start + column * wide, y.start - row * high
        cell = f"M{shortest(left)} {shortest(foot)}{outline}"
        paths.setdefault(level, []).append(cell)
    return [
        tag("path", d="".join(cells), fill=f"var(--h{level})")
        for level, cells in sorted(paths.items())
    ]


def _columns(
    columns: np.ndarray[tuple[int], np.dtype[np.int64]], gaps_ms: Samples, x: Scale, y: Scale
) -> list[Markup]:
    """Nothing to be seen, but what a pointer finds: the figures of each slice."""
    wide, seconds = (x.end - x.start) / COLUMNS, x.high / COLUMNS
    order = np.argsort(columns, kind="stable")
    edges = np.searchsorted(columns[order], np.arange(COLUMNS + 1))
    parts = []
    for column in range(COLUMNS):
        gaps = gaps_ms[order[edges[column] : edges[column + 1]]]
        if not gaps.size:
            continue
        p50, p99 = np.quantile(gaps, (0.5, 0.99))
        told = (
            f"{compact(column * seconds)}–{compact((column + 1) * seconds)} s: "
            f"{count(gaps.size)} gaps, p50 {duration(p50)}, p99 {duration(p99)}, "
            f"most {duration(float(gaps.max()))}"
        )
        parts.append(
            tag(
                "rect",
                tag("title", told),
                x=x.start + column * wide,
                y=y.end,
                width=wide,
                height=y.start - y.end,
                fill="transparent",
            )
        )
    return parts


def _scale(most: int) -> list[Markup]:
    """The colours and what they stand for, below the axis on the right."""
    wide, top = 22, HEIGHT - 18
    right = WIDTH - frame.RIGHT
    start = right - LEVELS * wide - 34
    parts = [
        tag(
            "rect",
            x=start + index * wide,
            y=top,
            width=wide,
            height=10,
            fill=f"var(--h{index + 1})",
        )
        for index in range(LEVELS)
    ]
    parts.append(tag("text", "gaps in a cell: 1", x=start - 6, y=top + 9, text_anchor="end"))
    parts.append(tag("text", compact(most), x=right - 30, y=top + 9))
    return parts
