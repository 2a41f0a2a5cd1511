"""One mark for each request: when it was wanted and how long it took, or how much ran beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.page.figures import duration
from headrace.page.markup import Markup, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import Scale, suited
from headrace.page.plots.thin import Spot, by_slices, thinned_note

WIDTH, HEIGHT = 1080, 320

MOST_SPOTS = 1500
"""Of each kind; at about 75 bytes a mark."""

SHOWN_FAILURES = 300

_RULE = "in each of 100 slices of the x axis the lowest, the highest and some between by rank"


@dataclass(frozen=True, slots=True)
class Marks:
    """The points of one kind in a scatter plot."""

    key: Key
    spots: Sequence[Spot]


def scatter(
    title: str,
    marks: Sequence[Marks],
    x: Callable[[float, float], Scale],
    *,
    x_title: str,
    x_label: Callable[[float], str],
    y_title: str,
    failures: Sequence[float] = (),
    limit_ms: float | None = None,
    caption: str = "",
) -> Plot | None:
    """x: makes the axis between two ends. failures: places on it of requests that have no height.

    Heights are milliseconds. None where there are no marks.
    """
    drawn = [one for one in marks if one.spots]
    if not drawn:
        return None
    heights = [spot.y for one in drawn for spot in one.spots]
    slo = "" if limit_ms is None else f"SLO {duration(limit_ms)}"
    notes = [caption, frame.beyond(limit_ms, heights, slo)]
    limit_ms = frame.within(limit_ms, heights)
    if limit_ms is not None:
        heights.append(limit_ms)
    along = x(frame.LEFT, WIDTH - frame.RIGHT)
    up = suited(heights, HEIGHT - frame.BOTTOM, frame.TOP)
    y_name = y_title + (", logarithmic" if up.logarithmic else "")
    parts = frame.axes(along, up, x_title, y_name, x_label=x_label, y_label=duration, x_ticks=12)
    if limit_ms is not None:
        parts += frame.limit_across(along, up, limit_ms, slo)
    for one in drawn:
        kept = by_slices(one.spots, MOST_SPOTS)
        notes.append(thinned_note(len(kept), len(one.spots), f"“{one.key.name}”", _RULE))
        parts.append(_marks(kept, one.key, along, up, x_label))
    if failures:
        parts.append(_crosses(failures[:SHOWN_FAILURES], along, up))
        notes.append(
            thinned_note(
                min(len(failures), SHOWN_FAILURES), len(failures), "errors", "the first ones"
            )
        )
    keys = [one.key for one in drawn]
    if failures:
        keys.append(Key("errors, at the foot", "bad", mark="cross"))
    return Plot(
        title=title,
        svg=frame.svg(WIDTH, HEIGHT, title, parts),
        caption=" ".join(note for note in notes if note),
        keys=tuple(keys),
        wide=True,
    )


def _marks(
    spots: Sequence[Spot], key: Key, x: Scale, y: Scale, x_label: Callable[[float], str]
) -> Markup:
    marks = [
        tag(
            "circle",
            tag("title", f"request {spot.request}: {duration(spot.y)} at {x_label(spot.x)}"),
            cx=x.at(spot.x),
            cy=y.at(spot.y),
            r=2.5,
        )
        for spot in spots
    ]
    return tag("g", *marks, fill=f"var(--{key.colour})", fill_opacity="0.6", class_=key.class_)


def _crosses(places: Sequence[float], x: Scale, y: Scale) -> Markup:
    d = frame.crosses([x.at(place) for place in places], y)
    return tag("path", d=d, class_="cross")
