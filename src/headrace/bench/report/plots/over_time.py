"""Lines over time: of what was counted in each slice, or read from the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.bench.statistics import Samples
from headrace.page.figures import compact
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import Scale, exact, linear
from headrace.page.plots.thin import evenly

WIDTH, HEIGHT = 520, 240
MOST_PLACES = 500
"""Of a line: about one for each pixel."""


@dataclass(frozen=True, slots=True)
class Line:
    """(second, value), ascending in time."""

    key: Key
    places: Sequence[tuple[float, float]]


def over_time(
    title: str,
    lines: Sequence[Line],
    *,
    span_s: tuple[float, float],
    y_title: str,
    y_label: Callable[[float], str] = compact,
    least: float = 0.0,
    caption: str = "",
) -> Plot | None:
    """None where no line has two places. least: what the y axis reaches at least."""
    drawn = [one for one in lines if len(one.places) > 1]
    if not drawn:
        return None
    x = time_axis(span_s, frame.LEFT, WIDTH - frame.RIGHT)
    values = [value for one in drawn for _, value in one.places]
    y = linear([*values, least], HEIGHT - frame.BOTTOM, frame.TOP)
    parts = frame.axes(x, y, "seconds of the run", y_title, x_label=compact, y_label=y_label)
    for one in drawn:
        kept = evenly(one.places, MOST_PLACES)
        heights = [value for _, value in one.places]
        parts.append(
            frame.curve(
                [(x.at(at), y.at(value)) for at, value in kept],
                one.key,
                title=(
                    f"{one.key.name}: least {y_label(min(heights))}, "
                    f"mean {y_label(sum(heights) / len(heights))}, most {y_label(max(heights))}"
                ),
            )
        )
    return Plot(
        title=title,
        svg=frame.svg(WIDTH, HEIGHT, f"{title} over time", parts),
        caption=caption,
        keys=tuple(one.key for one in drawn),
    )


def time_axis(span_s: tuple[float, float], start: float, end: float) -> Scale:
    """From 0 to the length of the span."""
    return exact(0.0, max(span_s[1] - span_s[0], 1e-3), start, end)


def per_second(
    at_s: Samples, weights: Samples, span_s: tuple[float, float], slices: int = 100
) -> list[tuple[float, float]]:
    """The rate in each slice of the span, at the slice's middle; a slice is 1 s long or more."""
    length = max(span_s[1] - span_s[0], 1e-3)
    count = max(1, min(slices, int(length)))
    totals, edges = np.histogram(at_s - span_s[0], bins=count, range=(0.0, length), weights=weights)
    width = length / count
    return [
        (float(edge) + width / 2, float(total) / width)
        for edge, total in zip(edges, totals, strict=False)
    ]
