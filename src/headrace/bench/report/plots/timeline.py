"""Requests as rows, chunks as strokes: waiting, first token and stalls at a glance.

A row begins where the schedule wanted the request; what lies before it was sent is a thin line,
what lies before the first content chunk a thick one. Chunks closer than a pixel are one stroke.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headrace.bench.record import RequestRecord
from headrace.bench.report.plots.over_time import time_axis
from headrace.page.figures import compact, duration
from headrace.page.markup import Markup, shortest, tag
from headrace.page.plots import frame
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.scale import Scale
from headrace.page.plots.thin import evenly, thinned_note

WIDTH = 1080
MOST_ROWS = 100
"""More are thinner than a line of text together with the gap between rows."""

CLOSE_ROWS = 48

_KEYS = (
    Key("wanted, not yet sent", "c2", dash="2 2"),
    Key("sent, no content yet", "c3"),
    Key("chunks", "c1"),
    Key("failed", "bad", mark="cross"),
)


def timeline(records: Sequence[RequestRecord], span_s: tuple[float, float]) -> Plot | None:
    """Of requests in order of the time at which they were wanted; None without any."""
    ordered = _ordered(records)
    shown = evenly(ordered, MOST_ROWS)
    rule = "every n-th in order of intended send time"
    note = thinned_note(len(shown), len(ordered), "requests", rule)
    return _drawn("Timeline of chunks", shown, span_s, "seconds of the run", note)


def close_up(records: Sequence[RequestRecord]) -> Plot | None:
    """The neighbours of the longest stall, row by row; None where all fit in the whole view."""
    ordered = _ordered(records)
    if len(ordered) <= MOST_ROWS:
        return None
    longest = max(range(len(ordered)), key=lambda at: _longest_gap_ns(ordered[at]))
    first = min(max(0, longest - CLOSE_ROWS // 2), len(ordered) - CLOSE_ROWS)
    shown = ordered[first : first + CLOSE_ROWS]
    span = (
        min(record.intended_ns for record in shown) / 1e9,
        max(record.end_ns or record.intended_ns for record in shown) / 1e9,
    )
    note = (
        f"{CLOSE_ROWS} neighbours in order of intended send time, around the longest stall "
        f"(request {ordered[longest].index})."
    )
    x_title = "seconds since the intended send time of the first"
    return _drawn("Timeline, close to the longest stall", shown, span, x_title, note)


def _ordered(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    return sorted(records, key=lambda record: (record.intended_ns, record.index))


def _longest_gap_ns(record: RequestRecord) -> int:
    if record.failure is not None:
        return 0
    gaps = (after.at_ns - before.at_ns for before, after in pairwise(record.content))
    return max(gaps, default=0)


def _drawn(
    title: str,
    shown: Sequence[RequestRecord],
    span_s: tuple[float, float],
    x_title: str,
    note: str,
) -> Plot | None:
    if not shown:
        return None
    row = 7 if len(shown) > 40 else 12
    height = frame.TOP + row * len(shown) + frame.BOTTOM
    x = time_axis(span_s, frame.LEFT, WIDTH - frame.RIGHT)
    y = Scale(0, len(shown), height - frame.BOTTOM, frame.TOP)
    parts: list[Markup] = []
    bottom = height - frame.BOTTOM
    ticks = x.ticks(12)
    d = "".join(f"M{shortest(x.at(one))} {frame.TOP}V{bottom}" for one in ticks)
    parts.append(tag("path", d=d, class_="grid"))
    parts += [
        tag("text", compact(one), x=x.at(one), y=bottom + 17, text_anchor="middle") for one in ticks
    ]
    parts.append(
        tag(
            "text",
            x_title,
            x=(x.start + x.end) / 2,
            y=bottom + 36,
            text_anchor="middle",
        )
    )
    every = 5 if row < 12 else 2
    for place, record in enumerate(shown):
        at = y.end + row * (place + 0.5)
        if place % every == 0:
            parts.append(
                tag("text", f"#{record.index}", x=x.start - 7, y=at + 4, text_anchor="end")
            )
        parts.append(_row(record, x, at, row * 0.66, span_s[0]))
    return Plot(
        title=title,
        svg=frame.svg(WIDTH, height, title, parts),
        caption=f"A row is a request, a stroke a chunk with content. {note}".strip(),
        keys=_KEYS,
        wide=True,
    )


def _row(record: RequestRecord, x: Scale, at: float, thick: float, began_s: float) -> Markup:
    def place(moment_ns: int) -> float:
        return x.at(moment_ns / 1e9 - began_s)

    content = record.content
    wanted = place(record.intended_ns)
    ended = place(record.end_ns) if record.end_ns is not None else wanted
    sent = place(record.sent_ns) if record.sent_ns is not None else ended
    first = place(content[0].at_ns) if content else ended
    line, foot = shortest(at), shortest(at + thick / 2)
    parts: list[Markup] = []
    if sent > wanted:
        d = f"M{shortest(wanted)} {line}H{shortest(sent)}"
        parts.append(tag("path", d=d, stroke="var(--c2)", stroke_dasharray="2 2"))
    failed = record.failure is not None
    if record.sent_ns is not None:
        colour = "bad" if failed and not content else "c3"
        d = f"M{shortest(sent)} {line}H{shortest(max(first, sent + 1))}"
        parts.append(tag("path", d=d, stroke=f"var(--{colour})", stroke_width=2))
    strokes = sorted({round(place(chunk.at_ns)) for chunk in content})
    if strokes:
        # Relative to the stroke before it, which is short.
        d = f"M{strokes[0]} {foot}v{shortest(-thick)}"
        for before, after in pairwise(strokes):
            d += f"m{after - before} {shortest(thick)}v{shortest(-thick)}"
        wide = 1.6 if thick > 5 else 1
        parts.append(tag("path", d=d, stroke="var(--c1)", stroke_width=wide, fill="none"))
    if failed:
        d = f"M{shortest(ended - 3)} {shortest(at - 3)}l6 6m0 -6l-6 6"
        parts.append(tag("path", d=d, class_="cross"))
    return tag("g", tag("title", _told(record)), *parts)


def _told(record: RequestRecord) -> str:
    words = [f"request {record.index}"]
    if record.sent_ns is not None:
        late = (record.sent_ns - record.intended_ns) / 1e6
        if late >= 1:
            words.append(f"sent {duration(late)} late")
        if record.content:
            words.append(f"TTFT {duration((record.content[0].at_ns - record.sent_ns) / 1e6)}")
        if record.end_ns is not None:
            words.append(f"ended after {duration((record.end_ns - record.sent_ns) / 1e6)}")
    words.append(f"{len(record.content)} chunks")
    if record.failure is not None:
        words.append(f"{record.failure.kind}: {record.failure.message}")
    return ", ".join(words)
