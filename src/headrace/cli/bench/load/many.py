"""`headrace bench load --sweep` and `--search`: several runs, one report."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from headrace.bench.load.demands import is_met
from headrace.bench.load.experiment import Experiment, RunResult
from headrace.bench.load.load_options import LoadOptions
from headrace.bench.load.runs import ReportRun, no_report
from headrace.bench.load.search_runs import run_search
from headrace.bench.load.sweep import SweepOptions
from headrace.bench.load.sweep_runs import SweepResult, run_sweep
from headrace.bench.report.load_sheets import loads, search_steps
from headrace.bench.report.table import sheet_table
from headrace.bench.search_result import SearchResult
from headrace.cli.bench.console import wide_console
from headrace.cli.bench.load.command import SLO_MISSED, save, show, status_of
from headrace.cli.bench.load.setup import save_of, search_of
from headrace.cli.interrupt import INTERRUPTED


def sweep_command(
    experiment: Experiment, options: LoadOptions, of: SweepOptions, given: dict[str, Any]
) -> int:
    """The exit status; the report is of the run with most load, its curves of all."""
    found = run_sweep(
        experiment,
        options,
        of,
        attainment=given["attainment"],
        save=save_of(given),
        told=_teller(given),
    )
    if given["as_json"]:
        click.echo(msgspec.json.encode({"sweep": _points(found)}))
    else:
        show(found.shown, given)
        # Last, because it is what a sweep is for.
        wide_console().print(sheet_table(loads(found.curve), tight=True))
    save(found.shown, experiment, given, sweep=found.curve)
    status = max(status_of(one.result, {**given, "require_slo": False}) for one in found.points)
    judged = [point.result.summary.goodput for point in found.points]
    if given["require_slo"] and not any(
        one is not None and is_met(one, given["attainment"]) for one in judged
    ):
        click.echo("headrace: the SLO was missed at every load", err=True)
        # As of one run: what failed, or never answered, is why.
        return status or SLO_MISSED
    return status


def search_command(experiment: Experiment, options: LoadOptions, given: dict[str, Any]) -> int:
    """The exit status; the report is of the last run at the highest rate that met the SLO."""
    found = run_search(
        experiment,
        options,
        search_of(given),
        save=save_of(given),
        told=_teller(given),
        told_rule=lambda rule: None if given["quiet"] else click.echo(rule, err=True),
    )
    best, result = found.shown, found.result
    if result is None:
        show(best, given)
        save(best, experiment, given, sweep=found.curve)
        return status_of(best, given)
    if given["as_json"]:
        click.echo(msgspec.json.encode({"search": result, **_facts(best)}))
    else:
        show(best, given)
        wide_console().print(sheet_table(search_steps(result), tight=True))
        slo = "" if experiment.slo is None else experiment.slo.text
        _print_search(result, slo, given["attainment"])
    save(best, experiment, given, sweep=found.curve, search=result)
    if found.interrupted:
        return INTERRUPTED
    if result.highest_met is None and given["require_slo"]:
        return SLO_MISSED
    return status_of(best, {**given, "require_slo": False})


def _teller(given: dict[str, Any]) -> ReportRun:
    return no_report if given["quiet"] else _tell


def _tell(name: str, done: RunResult) -> None:
    of = done.summary
    click.echo(
        f"{name}: {of.rps or 0:.4g} requests/s, {of.tps_system or 0:.4g} tokens/s, "
        f"{of.requests.failed} failed",
        err=True,
    )


def _points(found: SweepResult) -> list[dict[str, Any]]:
    return [
        {
            "name": point.name,
            "rate": point.rate,
            "users": point.users,
            "batching_efficiency": efficiency,
            **_facts(point.result),
        }
        for point, efficiency in zip(found.points, found.batching_efficiencies, strict=True)
    ]


def _facts(done: RunResult) -> dict[str, Any]:
    return {"about": done.run.about, "summary": done.summary}


def _print_search(result: SearchResult, slo: str, attainment: float) -> None:
    sure = "decided" if result.decided else "not decided"
    click.echo(f"{slo}, {attainment:.0%} of requests: {result.told} ({sure}). {result.sure}.")
