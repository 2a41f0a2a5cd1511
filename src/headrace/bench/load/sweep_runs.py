"""A sweep against an endpoint: which load each of its runs has, and what they come to together."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.bench.load.experiment import Experiment, RunResult
from headrace.bench.load.load_options import LoadOptions, at_once, at_rate
from headrace.bench.load.runs import ReportRun, Runs, no_report
from headrace.bench.load.save import SaveOptions
from headrace.bench.load.search import DEFAULT_ATTAINMENT
from headrace.bench.load.sweep import (
    SweepOptions,
    SweepPoint,
    sweep,
    sweep_chosen,
)
from headrace.bench.load_point import LoadPoint, efficiencies

THROUGHPUT_CONCURRENCY = 64


class SweepResult(NamedTuple):
    """A finished sweep."""

    points: tuple[SweepPoint[RunResult], ...]
    """Points in ascending order of load."""
    curve: tuple[LoadPoint, ...]
    """The curve of those runs that completed something."""

    @property
    def shown(self) -> RunResult:
        """The run with most load, of which a report's tables are."""
        return self.points[-1].result

    @property
    def batching_efficiencies(self) -> list[float | None]:
        """Run by run; None where there is none of one request at a time to compare with."""
        if self.points[0].users != 1:
            return [None] * len(self.points)
        done = [point.result.summary for point in self.points]
        return efficiencies([(one.tps_system, one.concurrency.mean) for one in done])


def run_sweep(
    experiment: Experiment,
    options: LoadOptions,
    loads: SweepOptions,
    *,
    attainment: float = DEFAULT_ATTAINMENT,
    save: SaveOptions | None = None,
    told: ReportRun = no_report,
) -> SweepResult:
    """All runs of it, until Ctrl-C, or one without any answer.

    options: of each run but its load. Where rates are found, `options.concurrency` is the users of
    the run with most load [64]; where they are chosen, the most requests in flight. With
    `options.stop_when_saturated` rates above one that was too much are left out.
    Raises ConfigError for options that go not together, HeadraceError where files of `save` cannot
    be written.
    """
    runs = Runs("sweep", experiment, attainment=attainment, save=save, told=told)

    def saturated(done: RunResult) -> bool:
        return options.stop_when_saturated and is_saturated(done)

    if loads.rates or loads.users:
        points = sweep_chosen(
            loads,
            at_rate=lambda rate, name: runs.run(name, msgspec.structs.replace(options, rate=rate)),
            at_once=lambda users, name: runs.run(name, at_once(options, users)),
            go_on=runs.go_on,
            saturated=saturated,
        )
    else:
        most = options.concurrency or THROUGHPUT_CONCURRENCY
        points = sweep(
            loads.points,
            synchronous=lambda: runs.run("1 at a time", at_once(options, 1)),
            throughput=lambda: runs.run(f"{most} at once", at_once(options, most)),
            at_rate=lambda rate: runs.run(f"{rate:.3g}/s", at_rate(options, rate)),
            completed_per_s=lambda done: done.summary.rps,
            go_on=runs.go_on,
            saturated=saturated,
            users=most,
        )
    found = SweepResult(tuple(points), tuple(runs.curve))
    runs.ended(found.shown)
    return found


def is_saturated(done: RunResult) -> bool:
    """Whether the server did not keep up with a run's rate."""
    found = done.summary.saturation
    return done.ending == "saturated" or (found is not None and found.saturated is True)
