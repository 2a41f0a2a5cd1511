"""`headrace bench load --sweep` and `--search`: several runs, one report."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from headrace.bench.load.demands import shares
from headrace.bench.load.experiment import Done, Experiment, load_point
from headrace.bench.load.load_options import LoadOptions
from headrace.bench.load.search import SearchResult, Share, search
from headrace.bench.load.sweep import SweepPoint, sweep
from headrace.bench.report.plots.load_curve import LoadPoint
from headrace.cli.bench_load import save, show, status_of
from headrace.cli.interrupt import INTERRUPTED

THROUGHPUT_CONCURRENCY = 64


class _Runs:
    """Runs one load after another, tells of each, and keeps them."""

    def __init__(self, experiment: Experiment, given: dict[str, Any]) -> None:
        self.done: list[Done] = []
        self._experiment = experiment
        self._given = given

    def run(self, name: str, options: LoadOptions) -> Done:
        done = self._experiment.run(options)
        self.done.append(done)
        requests = done.summary.requests
        if not self._given["quiet"]:
            click.echo(
                f"{name}: {done.summary.rps or 0:.4g} requests/s, "
                f"{done.summary.tps_system or 0:.4g} tokens/s, {requests.failed} failed",
                err=True,
            )
        return done

    def go_on(self) -> bool:
        """Whether nobody pressed Ctrl-C, and the last run had an answer."""
        last = self.done[-1] if self.done else None
        return last is None or (
            last.ending != "interrupted" and last.summary.requests.completed > 0
        )


def run_sweep(experiment: Experiment, options: LoadOptions, given: dict[str, Any]) -> int:
    """The exit status; the report is of the run with most users, its curves of all."""
    runs = _Runs(experiment, given)
    users = options.concurrency or THROUGHPUT_CONCURRENCY
    closed = msgspec.structs.replace(options, rate=None)
    opened = msgspec.structs.replace(options, concurrency=None, ramp_s=0.0, ramp_from=None)
    points = sweep(
        given["sweep"],
        synchronous=lambda: runs.run("1 at a time", _at_once(closed, 1)),
        throughput=lambda: runs.run(f"{users} at once", _at_once(closed, users)),
        at_rate=lambda rate: runs.run(f"{rate:.3g}/s", msgspec.structs.replace(opened, rate=rate)),
        completed_per_s=lambda done: done.summary.rps,
        go_on=runs.go_on,
    )
    last = points[-1].result
    curve = [_point(point) for point in points]
    if given["as_json"]:
        told = [
            {"name": point.name, "rate": point.rate, **_facts(point.result)} for point in points
        ]
        click.echo(msgspec.json.encode({"sweep": told}))
    else:
        _print_curve(curve)
        show(last, given)
    save(last, experiment, given, sweep=curve)
    return max((status_of(point.result, given) for point in points), default=0)


def run_search(experiment: Experiment, options: LoadOptions, given: dict[str, Any]) -> int:
    """The exit status; the report is of the last run at the highest rate that met the SLO."""
    runs = _Runs(experiment, given)
    slo = experiment.slo
    assert slo is not None, "checked before"
    by_rate: dict[float, Done] = {}
    first = options.rate
    if first is None:
        alone = runs.run("1 at a time", _at_once(options, 1))
        first = alone.summary.rps
        if first is None or not runs.go_on():
            show(alone, given)
            return status_of(alone, given)
    opened = msgspec.structs.replace(options, ramp_s=0.0)

    def trial(rate: float) -> list[Share]:
        done = runs.run(f"{rate:.4g}/s", msgspec.structs.replace(opened, rate=rate))
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
    if given["as_json"]:
        click.echo(msgspec.json.encode({"search": result, **_facts(best)}))
    else:
        show(best, given)
        _print_search(result, slo.text, given["attainment"])
    curve = sorted(
        (load_point(f"{rate:.4g}/s", rate, done) for rate, done in by_rate.items()),
        key=lambda point: point.offered_per_s or 0.0,
    )
    save(best, experiment, given, sweep=curve)
    if any(done.ending == "interrupted" for done in runs.done):
        return INTERRUPTED
    if result.highest_met is None and given["require_slo"]:
        return SLO_NEVER_MET
    return status_of(best, {**given, "require_slo": False})


# As `--require-slo` of one run.
SLO_NEVER_MET = 4


def _at_once(options: LoadOptions, users: int) -> LoadOptions:
    processes = min(options.processes, users)
    return msgspec.structs.replace(
        options,
        concurrency=users,
        rate=None,
        burstiness=None,
        ramp_from=None,
        processes=processes,
        ramp_s=0.0 if users == 1 else options.ramp_s,
    )


def _point(point: SweepPoint[Done]) -> LoadPoint:
    return load_point(point.name, point.rate, point.result)


def _facts(done: Done) -> dict[str, Any]:
    return {"about": done.run.about, "summary": done.summary}


def _print_curve(curve: list[LoadPoint]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, title="Load", title_justify="left")
    for name in ("load", "requests/s", "tokens/s", "in flight", "TTFT p50", "p99", "TPOT p50"):
        table.add_column(name, justify="left" if name == "load" else "right")
    for one in curve:
        table.add_row(
            one.name,
            f"{one.rps:.4g}",
            f"{one.tps_system:.4g}",
            "-" if one.in_flight is None else f"{one.in_flight:.1f}",
            "-" if one.ttft is None else f"{one.ttft.p50:.1f} ms",
            "-" if one.ttft is None else f"{one.ttft.p99:.1f} ms",
            "-" if one.tpot is None else f"{one.tpot.p50:.1f} ms",
        )
    Console().print(table)


def _print_search(result: SearchResult, slo: str, attainment: float) -> None:
    for step in result.steps:
        click.echo(
            f"  {step.rate:.4g}/s: {step.standing}, good share {step.low:.3f} to {step.high:.3f}, "
            f"{step.trials} runs"
        )
    sure = "decided" if result.decided else "not decided"
    click.echo(
        f"{slo}, {attainment:.0%} of requests: {result.told} ({sure}, each rate at "
        f"{result.confidence:.0%} confidence)"
    )
