"""One bar of parts beside each other against a limit: what fills a memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.page.markup import Markup, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import linear

WIDTH, HEIGHT = 1080, 120
_TOP, _BOTTOM = 26, 74


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the bar, at least 0."""

    key: Key
    value: float
    told: str


def stacked_bar(
    title: str,
    parts: Sequence[Part],
    *,
    limit: float,
    limit_name: str,
    axis: str,
    label: Callable[[float], str],
    caption: str = "",
) -> Plot:
    """Parts from the left, the limit as an upright line; what lies beyond it is hatched red."""
    whole = sum(part.value for part in parts)
    x = linear([whole, limit], frame.LEFT, WIDTH - frame.RIGHT)
    drawn: list[Markup] = []
    d = "".join(f"M{x.at(tick):.1f} {_TOP}V{_BOTTOM}" for tick in x.ticks(8))
    drawn.append(tag("path", d=d, class_="grid"))
    drawn += [
        tag("text", label(tick), x=x.at(tick), y=_BOTTOM + 17, text_anchor="middle")
        for tick in x.ticks(8)
    ]
    drawn.append(tag("text", axis, x=(x.start + x.end) / 2, y=_BOTTOM + 36, text_anchor="middle"))
    at = 0.0
    for part in parts:
        left, right = x.at(at), x.at(at + part.value)
        at += part.value
        drawn.append(
            tag("rect", tag("title", part.told), x=left, y=_TOP + 6,
                width=max(0.0, right - left), height=_BOTTOM - _TOP - 12,
                fill=f"var(--{part.key.colour})", stroke="var(--card)", stroke_width=1)
        )  # fmt: skip
    if whole > limit:
        drawn.append(
            tag("rect", x=x.at(limit), y=_BOTTOM - 5, width=x.at(whole) - x.at(limit), height=5,
                fill="var(--bad)")
        )  # fmt: skip
    place = x.at(limit)
    drawn.append(tag("line", x1=place, y1=_TOP - 4, x2=place, y2=_BOTTOM + 3, class_="limit"))
    anchor = "end" if place > WIDTH / 2 else "start"
    drawn.append(tag("text", limit_name, x=place, y=_TOP - 9, text_anchor=anchor, class_="note"))
    return Plot(
        title=title,
        svg=frame.svg(WIDTH, HEIGHT, title, drawn),
        caption=caption,
        keys=tuple(part.key for part in parts),
        wide=True,
    )
