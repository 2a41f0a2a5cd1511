"""How many requests were in flight, and the window in which a run was neither filling nor draining.

The mean by sweep line is the time that all requests spent in flight over the time of the run. By
Little's law it is also throughput times mean latency; the two differ by requests that failed and
by what the server sent after the last token. Knows no definitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from headrace.bench.record import RequestRecord, RunRecord

_FILLED = 0.95
"""Of the most that were in flight: of many users some are always between two requests, so that all
of them are seen at once late or never."""


class Flight(NamedTuple):
    """The time that one request was in flight, and whether it was answered in full."""

    start_ns: int
    end_ns: int
    completed: bool = True


class Window(NamedTuple):
    """A stretch of the run."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


def flights(records: Sequence[RequestRecord]) -> list[Flight]:
    """Of every request that was sent and ended, whether or not it failed."""
    return [
        Flight(record.sent_ns, record.end_ns, record.failure is None)
        for record in records
        if record.sent_ns is not None and record.end_ns is not None
    ]


def whole_window(flown: Sequence[Flight]) -> Window | None:
    """First start to last end."""
    if not flown:
        return None
    return Window(min(one.start_ns for one in flown), max(one.end_ns for one in flown))


def steady_window_of(run: RunRecord) -> Window | None:
    """Of a run's measured requests."""
    flown = flights([record for record in run.requests if record.measured])
    return steady_window(flown, closed_loop=run.about.get("open_loop") is False)


def steady_window(flown: Sequence[Flight], *, closed_loop: bool = False) -> Window | None:
    """From the first answer's end to the last start; None where the last began before any ended.

    Before it, slots are filling and nothing can have completed; after it, nothing new comes and
    slots run empty. Neither says what the server sustains. A failure is no answer: a refusal comes
    at once. closed_loop: nor does the window begin before the users are there, one after another
    where they are ramped up.
    """
    ends = [one.end_ns for one in flown if one.completed]
    if not ends:
        return None
    start, end = min(ends), max(one.start_ns for one in flown)
    if closed_loop:
        start = max(start, _filled_ns(flown))
    return Window(start, end) if start < end else None


def _filled_ns(flown: Sequence[Flight]) -> int:
    """When for the first time nearly as many were in flight as ever."""
    wanted = math.ceil(_FILLED * peak_in_flight(flown))
    now = 0
    for at_ns, change in _changes(flown):
        now += change
        if now >= wanted:
            return at_ns
    return 0


def mean_in_flight(flown: Sequence[Flight], window: Window) -> float | None:
    """Averaged over the time of the window; None where it has none."""
    length = window.end_ns - window.start_ns
    if length <= 0:
        return None
    inside = sum(
        max(0, min(one.end_ns, window.end_ns) - max(one.start_ns, window.start_ns)) for one in flown
    )
    return inside / length


def peak_in_flight(flown: Sequence[Flight]) -> int:
    """Most at once; one that ends as another begins is gone by then."""
    peak = now = 0
    for _, change in _changes(flown):
        now += change
        peak = max(peak, now)
    return peak


def _changes(flown: Sequence[Flight]) -> list[tuple[int, int]]:
    """When there was one more or one less, in order of time; ends before starts."""
    lasting = [one for one in flown if one.end_ns > one.start_ns]
    return sorted([(one.start_ns, 1) for one in lasting] + [(one.end_ns, -1) for one in lasting])
