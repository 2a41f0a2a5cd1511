"""A search against an endpoint for the highest rate at which it meets an SLO."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headrace.bench.load.demands import check_demands, judged_trial
from headrace.bench.load.experiment import Experiment, RunResult
from headrace.bench.load.load_options import LoadOptions, at_once
from headrace.bench.load.runs import ReportRun, Runs, no_report
from headrace.bench.load.save import SaveOptions
from headrace.bench.load.search import (
    DEFAULT_ATTAINMENT,
    DEFAULT_PRECISION,
    MOST_TRIALS,
    Trial,
    search,
)
from headrace.bench.load.sweep_runs import is_saturated
from headrace.bench.load.trial_length import ALONE_REQUESTS, TrialLength, trial_length
from headrace.bench.load_point import LoadPoint
from headrace.bench.search_result import SearchResult
from headrace.errors import ConfigError


class SearchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a search for the highest rate."""

    attainment: float = DEFAULT_ATTAINMENT
    """Share of requests that are to meet limits of each."""
    highest_rate: float = math.inf
    """Per second."""
    precision: float = DEFAULT_PRECISION
    """Width of the bracket, as a share of its lower end."""
    most_trials: int = MOST_TRIALS
    """Runs at one rate."""
    budget_s: float = math.inf
    """After which no run begins."""


class SearchDone(NamedTuple):
    """A finished search."""

    result: SearchResult | None
    """None if no rate was tried, because one request at a time got no answer."""
    shown: RunResult
    """The last run at the highest rate that met the SLO; where none did, the last run."""
    curve: tuple[LoadPoint, ...]
    interrupted: bool


def run_search(
    experiment: Experiment,
    options: LoadOptions,
    how: SearchOptions,
    *,
    save: SaveOptions | None = None,
    told: ReportRun = no_report,
    told_rule: Callable[[str], object] = lambda _rule: None,
    clock_s: Callable[[], float] = time.monotonic,
) -> SearchDone:
    """From `options.rate`, or from what one request at a time gets.

    Each trial is of `options.requests` or `options.duration_s`; without either as `trial_length`
    has it, for which one request at a time is measured first. told_rule: called with that rule.
    Raises ConfigError without an SLO, or of one that no share of requests can tell, HeadraceError
    where files of `save` cannot be written.
    """
    slo = experiment.slo
    if slo is None:
        raise ConfigError("a search needs an SLO: add --goodput 'ttft:500 tpot:50'")
    check_demands(slo, how.attainment)
    runs = Runs("search", experiment, attainment=how.attainment, save=save, told=told)
    first = options.rate
    length: TrialLength | None = None
    chosen = options.requests is not None or options.duration_s is not None
    if first is None or not chosen:
        lone = at_once(options, 1)
        if not chosen:
            lone = msgspec.structs.replace(lone, requests=ALONE_REQUESTS)
        alone = runs.run("1 at a time", lone)
        first = first or alone.summary.rps
        if first is None or not runs.go_on():
            runs.ended(alone)
            return SearchDone(None, alone, tuple(runs.curve), alone.ending == "interrupted")
        if not chosen:
            length = trial_length(slo, how.attainment, alone.run, how.budget_s)
    rule = "Trials are as long as --requests or --duration sets" if length is None else length.rule
    told_rule(rule)
    opened = msgspec.structs.replace(options, ramp_s=0.0)
    by_rate: dict[float, RunResult] = {}

    def trial(rate: float) -> Trial:
        again = " again" if rate in by_rate else ""
        load = msgspec.structs.replace(opened, rate=rate)
        if length is not None:
            load = msgspec.structs.replace(load, duration_s=length.at(rate))
        done = runs.run(f"{rate:.4g}/s{again}", load)
        by_rate[rate] = done
        return judged_trial(slo, how.attainment, done.run, saturated=is_saturated(done))

    result = search(
        trial,
        first,
        highest_rate=how.highest_rate,
        precision=how.precision,
        most_trials=how.most_trials,
        budget_s=how.budget_s,
        clock_s=clock_s,
        go_on=runs.go_on,
    )
    result = msgspec.structs.replace(result, trial_rule=rule)
    best = by_rate.get(result.highest_met or 0.0, runs.done[-1])
    runs.ended(best, result)
    interrupted = any(done.ending == "interrupted" for done in runs.done)
    return SearchDone(result, best, tuple(runs.curve), interrupted)
