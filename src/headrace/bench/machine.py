"""The limits of this machine, measured with the engine's own threads and instructions.

Read bandwidth by threads and footprint (so the steps of the caches show), and peak rates by
kind of operand at every dispatch level. The host may be shared, so each figure is taken several
times: the stored one is the median of the repeats, their range goes into the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from statistics import median
from typing import NamedTuple, Protocol

from headrace.telemetry.machine import (
    DRAM_FOOTPRINT_BYTES,
    Machine,
    PeakRate,
    ReadBandwidth,
    this_machine,
)

MB = 1_000_000

FOOTPRINTS_MB = (1, 4, 16, 64, DRAM_FOOTPRINT_BYTES // MB, 2000)
"""From within a core's own cache to far beyond any: each costs well under a second to read."""

KINDS = ("f32", "bf16", "bf16_pairs", "int8")


class Probe(Protocol):
    """A backend of one level and thread count that can be measured."""

    level: str
    num_threads: int

    def read_bandwidth(self, footprint_bytes: int) -> float:
        """Bytes per second over a footprint of about that size."""

    def peak_rate(self, kind: str) -> float | None:
        """Operations per second; None where the level has no instruction of that kind."""


class Spread(NamedTuple):
    """A figure taken several times."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        """Of at least one figure."""
        return cls(median(figures), min(figures), max(figures))


class MachineMeasurement(NamedTuple):
    """A measurement and the spread of each of its figures, in the order of read and of peak."""

    machine: Machine
    read_spreads: list[Spread]
    peak_spreads: list[Spread]


def measure_machine(
    make_probe: Callable[[str, int], Probe],
    *,
    levels: Iterable[str],
    threads: Iterable[int],
    footprints_bytes: Iterable[int],
    repeats: int,
    now: datetime,
    progress: Callable[[int, int], None] | None = None,
) -> MachineMeasurement:
    """Measure every level with every number of threads.

    Bandwidth does not depend on the level (all read with plain loads as wide as they have), but a
    measurement is looked up by level, so each has its own. progress: called with figures done and
    in all.
    """
    pairs = [(level, count) for level in levels for count in threads]
    footprints = list(footprints_bytes)
    total, done = len(pairs) * (len(footprints) + len(KINDS)), 0
    read: list[ReadBandwidth] = []
    peak: list[PeakRate] = []
    read_spreads: list[Spread] = []
    peak_spreads: list[Spread] = []

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    for level, count in pairs:
        probe = make_probe(level, count)
        for footprint in footprints:
            spread = Spread.of([probe.read_bandwidth(footprint) for _ in range(repeats)])
            read.append(ReadBandwidth(level, count, footprint, spread.median))
            read_spreads.append(spread)
            advance()
        for kind in KINDS:
            rates = [probe.peak_rate(kind) for _ in range(repeats)]
            known = [rate for rate in rates if rate is not None]
            if known:
                spread = Spread.of(known)
                peak.append(PeakRate(level, count, kind, spread.median))
                peak_spreads.append(spread)
            advance()
    cpu, cpus, memory_bytes = this_machine()
    machine = Machine(cpu, cpus, memory_bytes, now.isoformat(timespec="seconds"), read, peak)
    return MachineMeasurement(machine, read_spreads, peak_spreads)
