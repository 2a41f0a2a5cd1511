"""Tables of several runs at several loads: the points of a sweep, the steps of a search."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.load_point import LoadPoint, by_load, efficiencies
from headrace.bench.report.plots.load_curve import knee
from headrace.bench.search_result import SearchResult, Step
from headrace.bench.statistics import Distribution
from headrace.page.figures import DASH, count, figure, share
from headrace.page.sheet import Cell, Sheet


def loads(points: Sequence[LoadPoint]) -> Sheet:
    """A row for each run, in order of what was offered, or of users; milliseconds."""
    points = sorted(points, key=by_load(points))
    bend = knee(points)
    alone = _alone(points)
    judged = any(one.goodput_fraction is not None for one in points)
    columns = ["load", "requests/s", "tokens/s", "in flight", "TTFT p50", "p99", "TPOT p50", "p99"]
    columns += [*(["batching"] if alone else []), *(["good"] if judged else [])]
    rows = []
    for one in points:
        name = f"{one.name}, the knee" if one is bend else one.name
        cells = [
            Cell(name),
            Cell(figure(one.rps)),
            Cell(figure(one.tps_system)),
            Cell(figure(one.in_flight)),
            *_two(one.ttft),
            *_two(one.tpot),
        ]
        if alone is not None:
            cells.append(Cell(share(_batching(one, alone))))
        if judged:
            cells.append(Cell(share(one.goodput_fraction)))
        rows.append(tuple(cells))
    notes = ["TTFT and TPOT in ms, TTFT from the intended send time."]
    if alone is not None:
        notes.append(
            "Batching: output tokens/s divided by those of one request alone times the "
            "requests in flight."
        )
    return Sheet("Loads", tuple(columns), tuple(rows), tuple(notes))


def _alone(points: Sequence[LoadPoint]) -> LoadPoint | None:
    """The run of one request at a time, which the others are measured by."""
    first = min(points, key=lambda one: one.in_flight or float("inf"), default=None)
    return first if first is not None and (first.in_flight or float("inf")) <= _ALONE else None


def _batching(of: LoadPoint, alone: LoadPoint) -> float | None:
    return efficiencies([(one.tps_system, one.in_flight) for one in (alone, of)])[1]


_ALONE = 1.05
"""Requests in flight in the mean; a little more than one, because sums of times are rounded."""


def _two(of: Distribution | None) -> tuple[Cell, Cell]:
    return (Cell(DASH), Cell(DASH)) if of is None else (Cell(figure(of.p50)), Cell(figure(of.p99)))


def search_steps(of: SearchResult) -> Sheet:
    """A row for each rate, in the order in which they were tried."""
    rows = tuple(
        (
            Cell(f"{figure(step.rate)}/s"),
            Cell(_standing(step), verdict={"met": True, "missed": False}.get(step.standing)),
            Cell(f"{share(step.low)} – {share(step.high)}"),
            Cell(count(sum(one.judged for one in step.shares[:1]))),
            Cell(_effective(step)),
            Cell(count(step.trials)),
        )
        for step in of.steps
    )
    notes = (
        f"{of.told[:1].upper()}{of.told[1:]}. {of.sure}.",
        "Worth: the number of independent requests with as much evidence; requests in one "
        "queue are not independent.",
        *([f"{of.trial_rule}."] if of.trial_rule else []),
    )
    columns = ("rate", "SLO", "good, share of all requests", "requests judged", "worth", "runs")
    return Sheet("Search", columns, rows, notes, names=2)


def _standing(step: Step) -> str:
    return "missed, did not keep up" if step.kept_up is False else step.standing


def _effective(step: Step) -> str:
    known = [one.effective for one in step.shares if one.effective is not None]
    return count(int(min(known))) if known else DASH
