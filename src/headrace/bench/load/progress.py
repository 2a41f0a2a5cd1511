"""What a watcher is told while a run is on: counts, and latencies of the replies read since."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.bench.definitions import DEFINITIONS
from headrace.bench.load.runner import Counts
from headrace.bench.record import RequestRecord


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one client."""

    counts: Counts
    ttft_ms: tuple[float, ...] = ()
    """TTFT from the intended time, of some requests that ended since the last report; reading every
    reply would cost the client too much time."""
    tpot_ms: tuple[float, ...] = ()
    """TPOT of the same requests."""


def progress(counts: Counts, read: Iterable[RequestRecord]) -> Progress:
    """read: the records of this look, of which the first and the last chunks count."""
    measure = DEFINITIONS["headrace"].measure
    found = [got for one in read if (got := measure(one, "intended")) is not None]
    return Progress(
        counts=counts,
        ttft_ms=tuple(one.times_ns["ttft"] / 1e6 for one in found if "ttft" in one.times_ns),
        tpot_ms=tuple(one.times_ns["tpot"] / 1e6 for one in found if "tpot" in one.times_ns),
    )


def added(of: Iterable[Progress]) -> Progress:
    """Of several clients together."""
    every = list(of)
    counts = [sum(column) for column in zip(*(one.counts for one in every), strict=True)]
    return Progress(
        counts=Counts(*(counts or [0] * len(Counts._fields))),
        ttft_ms=tuple(value for one in every for value in one.ttft_ms),
        tpot_ms=tuple(value for one in every for value in one.tpot_ms),
    )
