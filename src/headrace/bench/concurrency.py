"""How many requests were in flight, and the window in which a run was neither filling nor draining.

The mean by sweep line is the time that all requests spent in flight over the time of the run. By
Little's law it is also throughput times mean latency; the two differ by requests that failed and
by what the server sent after the last token. Knows no definitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.bench.record import RequestRecord


class Flight(NamedTuple):
    """From when to when one request was in flight."""

    start_ns: int
    end_ns: int


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
        Flight(record.sent_ns, record.end_ns)
        for record in records
        if record.sent_ns is not None and record.end_ns is not None
    ]


def whole_window(flown: Sequence[Flight]) -> Window | None:
    """First start to last end."""
    if not flown:
        return None
    return Window(min(one.start_ns for one in flown), max(one.end_ns for one in flown))


def steady_window(flown: Sequence[Flight]) -> Window | None:
    """From the first end to the last start; None where the last began before any had ended.

    Before it, slots are filling and nothing can have completed; after it, nothing new comes and
    slots run empty. Neither says what the server sustains.
    """
    whole = whole_window(flown)
    if whole is None:
        return None
    start, end = min(one.end_ns for one in flown), max(one.start_ns for one in flown)
    return Window(start, end) if start < end else None


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
    events = sorted(
        [(one.start_ns, 1) for one in flown if one.end_ns > one.start_ns]
        + [(one.end_ns, -1) for one in flown if one.end_ns > one.start_ns]
    )
    peak = now = 0
    for _, change in events:
        now += change
        peak = max(peak, now)
    return peak
