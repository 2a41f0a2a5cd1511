"""Plots of characters for a terminal: lines and points on linear or logarithmic axes.

Each curve has a mark of its own, so that it is told apart without colours; a later one covers an
earlier. Lines between points are drawn with dots, which say that nothing was computed there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.page.figures import compact
from headrace.page.plots.scale import Scale, linear, logarithmic

_LABEL = 8
"""Characters of a number beside the y axis."""


@dataclass(frozen=True, slots=True)
class TextCurve:
    """A curve drawn with characters."""

    name: str
    mark: str
    """One character."""
    points: Sequence[tuple[float, float]]
    joined: bool = True
    """With dots between points."""


@dataclass(frozen=True, slots=True)
class TextAxis:
    """The quantity of an axis and the form of its numbers."""

    title: str
    logarithmic: bool = False
    label: Callable[[float], str] = compact


def text_plot(
    title: str,
    curves: Sequence[TextCurve],
    x: TextAxis,
    y: TextAxis,
    *,
    width: int = 56,
    height: int = 12,
) -> list[str]:
    """Lines of text, at most `width` characters each; none where there is no point.

    width: at least 24, height: of the plot itself, at least 3.
    """
    spots = [spot for curve in curves for spot in curve.points]
    if not spots:
        return []
    columns = max(24, width) - _LABEL - 2
    rows = max(3, height)
    across = _scale(x, [spot[0] for spot in spots], columns - 1)
    up = _scale(y, [spot[1] for spot in spots], rows - 1)
    canvas = [[" "] * columns for _ in range(rows)]
    for curve in curves:
        if curve.joined:
            for left, right in zip(curve.points, curve.points[1:], strict=False):
                _join(canvas, across, up, left, right)
    for curve in curves:
        for at, height_at in curve.points:
            canvas[rows - 1 - round(up.at(height_at))][round(across.at(at))] = curve.mark[:1]
    labels = {rows - 1 - round(up.at(tick)): y.label(tick) for tick in up.ticks(max(2, rows // 3))}
    lines = [title[:width]]
    for row, cells in enumerate(canvas):
        label = labels.get(row, "")[:_LABEL]
        edge = "┤" if label else "│"
        lines.append(f"{label:>{_LABEL}} {edge}{''.join(cells)}".rstrip())
    lines.append(f"{'':>{_LABEL}} └{'─' * columns}")
    lines.append(_numbers(across, x, columns))
    how = [f"{curve.mark[:1]} {curve.name}" for curve in curves if curve.name]
    lines += _wrapped([f"x: {_named(x)}", f"y: {_named(y)}", *how], width)
    return lines


def text_bar(parts: Sequence[tuple[str, float]], limit: float, width: int = 60) -> str:
    """A bar of parts, each with its own mark, up to a limit that `|` shows; free space is dots.

    parts: mark and value, at least 0. The scale ends at the limit, or at the sum where that is
    more.
    """
    whole = sum(value for _, value in parts)
    most = max(whole, limit)
    if most <= 0:
        return ""
    cells: list[str] = []
    at = 0.0
    for mark, value in parts:
        at += value
        cells += [mark[:1]] * (round(at / most * width) - len(cells))
    cells += ["·"] * (width - len(cells))
    place = min(width, round(limit / most * width))
    return "".join([*cells[:place], "|", *cells[place:]])


def _scale(axis: TextAxis, values: Sequence[float], end: int) -> Scale:
    return (logarithmic if axis.logarithmic else linear)(values, 0, end)


def _join(
    canvas: list[list[str]],
    x: Scale,
    y: Scale,
    left: tuple[float, float],
    right: tuple[float, float],
) -> None:
    """A dot in each cell on the way."""
    rows = len(canvas)
    a, b = (x.at(left[0]), y.at(left[1])), (x.at(right[0]), y.at(right[1]))
    steps = max(1, round(max(abs(b[0] - a[0]), abs(b[1] - a[1]))))
    for step in range(steps + 1):
        part = step / steps
        column = round(a[0] + part * (b[0] - a[0]))
        row = rows - 1 - round(a[1] + part * (b[1] - a[1]))
        canvas[row][column] = "·"


def _numbers(scale: Scale, axis: TextAxis, columns: int) -> str:
    """Below the axis; a number that would touch the one before is left out."""
    cells = [" "] * (columns + _LABEL + 2)
    free = 0
    for tick in scale.ticks(5):
        label = axis.label(tick)
        start = round(scale.at(tick)) + _LABEL + 2 - len(label) // 2
        start = max(0, min(start, len(cells) - len(label)))
        if start < free:
            continue
        cells[start : start + len(label)] = label
        free = start + len(label) + 2
    return "".join(cells).rstrip()


def _named(axis: TextAxis) -> str:
    return axis.title + (" (log)" if axis.logarithmic else "")


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += f" · {word}"
        else:
            lines.append(word[:width])
    return lines
