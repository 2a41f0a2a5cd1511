"""`headrace bench load --sweep` and `--search`: several runs, one report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from headrace.bench.load.demands import shares
from headrace.bench.load.experiment import Done, Experiment
from headrace.bench.load.load_options import LoadOptions, at_once, at_rate
from headrace.bench.load.search import SearchResult, Share, search
from headrace.bench.load.sweep import efficiencies, sweep
from headrace.bench.report.load_sheets import loads, search_steps
from headrace.bench.report.plots.load_curve import LoadPoint, load_point
from headrace.bench.report.series import RUNS, Series, SeriesRun, forget_runs, write_series
from headrace.bench.report.table import sheet_table
from headrace.cli.bench_console import wide_console
from headrace.cli.bench_load import SLO_MISSED, save, save_run, show, status_of
from headrace.cli.interrupt import INTERRUPTED
from headrace.errors import HeadraceError

THROUGHPUT_CONCURRENCY = 64


class _Runs:
    """Runs one load after another, tells of each, and keeps them.

    Where a folder was named, each run's files are in one of its own below it as soon as the run has
    ended, and `series.json` lists them.
    """

    def __init__(
        self,
        kind: Literal["sweep", "search"],
        experiment: Experiment,
        given: dict[str, Any],
    ) -> None:
        self.done: list[Done] = []
        self.curve: list[LoadPoint] = []
        self._kind: Literal["sweep", "search"] = kind
        self._experiment = experiment
        self._given = given
        self._entries: list[SeriesRun] = []
        if given["save"] is not None:
            forget_runs(given["save"])

    def run(self, name: str, options: LoadOptions) -> Done:
        within = f"{RUNS}/{len(self.done) + 1:02}"
        folder: Path | None = None if self._given["save"] is None else self._given["save"] / within
        done = self._experiment.run(options, keep=folder)
        self.done.append(done)
        point = load_point(name, done.summary, options.rate)
        if point is not None:
            self.curve.append(point)
        if folder is not None:
            save_run(folder, done, self._experiment, self._given, options.rate)
            self._entries.append(SeriesRun(name=name, rate=options.rate, folder=within))
            self._write()
        requests = done.summary.requests
        if not self._given["quiet"]:
            click.echo(
                f"{name}: {done.summary.rps or 0:.4g} requests/s, "
                f"{done.summary.tps_system or 0:.4g} tokens/s, {requests.failed} failed",
                err=True,
            )
        return done

    def ended(self, shown: Done, search: SearchResult | None = None) -> None:
        """The series is complete; the report's tables are of the run `shown`."""
        if self._entries:
            place = next(at for at, one in enumerate(self.done) if one is shown)
            self._write(self._entries[place].folder, search)

    def _write(self, shown: str | None = None, search: SearchResult | None = None) -> None:
        folder: Path = self._given["save"]
        series = Series(
            kind=self._kind,
            runs=tuple(self._entries),
            attainment=self._given["attainment"],
            shown=shown,
            search=search,
        )
        try:
            write_series(folder, series)
        except OSError as error:
            raise HeadraceError(f"--save {folder}: {error.strerror}") from error

    def go_on(self) -> bool:
        """Whether nobody pressed Ctrl-C, and the last run had an answer."""
        last = self.done[-1] if self.done else None
        return last is None or (
            last.ending != "interrupted" and last.summary.requests.completed > 0
        )


def run_sweep(experiment: Experiment, options: LoadOptions, given: dict[str, Any]) -> int:
    """The exit status; the report is of the run with most users, its curves of all."""
    runs = _Runs("sweep", experiment, given)
    users = options.concurrency or THROUGHPUT_CONCURRENCY
    points = sweep(
        given["sweep"],
        synchronous=lambda: runs.run("1 at a time", at_once(options, 1)),
        throughput=lambda: runs.run(f"{users} at once", at_once(options, users)),
        at_rate=lambda rate: runs.run(f"{rate:.3g}/s", at_rate(options, rate)),
        completed_per_s=lambda done: done.summary.rps,
        go_on=runs.go_on,
        saturated=lambda done: options.stop_when_saturated and _is_saturated(done),
    )
    last = points[-1].result
    runs.ended(last)
    if given["as_json"]:
        done = [point.result.summary for point in points]
        gained = efficiencies([(one.tps_system, one.concurrency.mean) for one in done])
        told = [
            {
                "name": point.name,
                "rate": point.rate,
                "batching_efficiency": efficiency,
                **_facts(point.result),
            }
            for point, efficiency in zip(points, gained, strict=True)
        ]
        click.echo(msgspec.json.encode({"sweep": told}))
    else:
        show(last, given)
        # Last, because it is what a sweep is for.
        wide_console().print(sheet_table(loads(runs.curve), tight=True))
    save(last, experiment, given, sweep=runs.curve)
    return max((status_of(point.result, given) for point in points), default=0)


def run_search(experiment: Experiment, options: LoadOptions, given: dict[str, Any]) -> int:
    """The exit status; the report is of the last run at the highest rate that met the SLO."""
    runs = _Runs("search", experiment, given)
    slo = experiment.slo
    assert slo is not None, "checked before"
    by_rate: dict[float, Done] = {}
    first = options.rate
    if first is None:
        alone = runs.run("1 at a time", at_once(options, 1))
        first = alone.summary.rps
        if first is None or not runs.go_on():
            runs.ended(alone)
            show(alone, given)
            save(alone, experiment, given, sweep=runs.curve)
            return status_of(alone, given)
    opened = msgspec.structs.replace(options, ramp_s=0.0)

    def trial(rate: float) -> list[Share]:
        again = " again" if rate in by_rate else ""
        done = runs.run(f"{rate:.4g}/s{again}", msgspec.structs.replace(opened, rate=rate))
        by_rate[rate] = done
        return shares(slo, given["attainment"], done.run)

    result = search(
        trial,
        first,
        highest_rate=given["highest_rate"] or float("inf"),
        precision=given["precision"],
        most_trials=given["trials"],
        budget_s=given["budget_s"] or float("inf"),
        clock_s=time.monotonic,
        go_on=runs.go_on,
    )
    best = by_rate.get(result.highest_met or 0.0, runs.done[-1])
    runs.ended(best, result)
    if given["as_json"]:
        click.echo(msgspec.json.encode({"search": result, **_facts(best)}))
    else:
        show(best, given)
        wide_console().print(sheet_table(search_steps(result), tight=True))
        _print_search(result, slo.text, given["attainment"])
    save(best, experiment, given, sweep=runs.curve, search=result)
    if any(done.ending == "interrupted" for done in runs.done):
        return INTERRUPTED
    if result.highest_met is None and given["require_slo"]:
        return SLO_MISSED
    return status_of(best, {**given, "require_slo": False})


def _is_saturated(done: Done) -> bool:
    found = done.summary.saturation
    return done.ending == "saturated" or (found is not None and found.saturated is True)


def _facts(done: Done) -> dict[str, Any]:
    return {"about": done.run.about, "summary": done.summary}


def _print_search(result: SearchResult, slo: str, attainment: float) -> None:
    sure = "decided" if result.decided else "not decided"
    click.echo(
        f"{slo}, {attainment:.0%} of requests: {result.told} ({sure}, each rate at "
        f"{result.confidence:.0%} confidence)"
    )
