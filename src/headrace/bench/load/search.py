"""The highest rate at which an SLO is met, by bisection.

What is to be met is that a share of all requests the server would get at this rate is good. A rate
is met or missed once the interval of the good share lies on one side of the wanted one; until then
its trial is repeated, and the trials are pooled. Requests in one queue are not independent:
`evidence` says how many independent ones they are worth. A rate at which the server does not keep
up is missed, whatever the shares are: they would fall if the trial went on. A rate whose trials end
undecided counts as not met, and the result says so.

The confidence is of the whole search. A quarter of the error is spent on the rates before there is
a bracket, 1 / (i (i + 1)) of it on the i-th; the rest, evenly, on the rates within it, whose number
the precision bounds; half of a rate's on its last look, where most is known, the other half evenly
on those before. Then the error of all is no more than what was allowed (Bonferroni). A rate whose
share is below what is wanted is given up after two trials: it would take many to be met, and the
search goes on below it, which makes no rate met that is not. Knows no requests: a trial is a
function; clock and limits are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.bench.load.evidence import Outcomes, effective_number, share_interval
from headrace.bench.search_result import SearchResult, Share, Standing, Step
from headrace.bench.statistics import CONFIDENCE

DEFAULT_ATTAINMENT = 0.9
DEFAULT_PRECISION = 0.05
MOST_TRIALS = 10
_GIVEN_UP_AFTER = 2
# Doublings of the first rate: a factor of a million.
_MOST_STEPS_UP = 20


# Where a queue grows: more came than ended, by this share and by more than chance explains.
_GROWS = 0.05
_DEVIATIONS = 3.0
# Part of the error that is spent before there is a bracket.
_BEFORE = 0.25


class Judged(NamedTuple):
    """One demand in one trial: `wanted` of all requests are to be good."""

    name: str
    wanted: float
    outcomes: Outcomes


class Trial(NamedTuple):
    """The result of one trial at a rate."""

    judged: Sequence[Judged]
    saturated: bool = False
    """As in `saturation`."""
    came: int = 0
    ended: int = 0
    """With `came`: requests, in the time that is judged."""


def search(
    trial: Callable[[float], Trial],
    first_rate: float,
    *,
    highest_rate: float = math.inf,
    precision: float = DEFAULT_PRECISION,
    confidence: float = CONFIDENCE,
    most_trials: int = MOST_TRIALS,
    budget_s: float = math.inf,
    clock_s: Callable[[], float],
    go_on: Callable[[], bool] = lambda: True,
) -> SearchResult:
    """From the first rate up by doubling while it is met, down by halving while it is not, and then
    between, until the bracket is narrower than `precision` of its lower end.

    trial: runs a load at a rate and tells how it went. No trial begins after the budget.
    """
    ends_s = clock_s() + budget_s
    steps: list[Step] = []

    def may() -> bool:
        return go_on() and clock_s() < ends_s

    inside = max(1, math.ceil(math.log2(1 / precision)))

    def at(rate: float, part: float) -> Step:
        step = _decide(trial, rate, (1 - confidence) * part, most_trials, may)
        steps.append(step)
        return step

    met: Step | None = None
    missed: Step | None = None
    rate = min(first_rate, highest_rate)
    for number in range(1, _MOST_STEPS_UP + 1):
        if not may():
            break
        step = at(rate, _BEFORE / (number * (number + 1)))
        if step.standing == "met":
            met = step
            if missed is not None or rate >= highest_rate:
                break
            rate = min(rate * 2, highest_rate)
        else:
            missed = step
            if met is not None:
                break
            rate /= 2
    while met is not None and missed is not None and may():
        if missed.rate - met.rate <= precision * met.rate:
            break
        step = at((met.rate + missed.rate) / 2, (1 - _BEFORE) / inside)
        if step.standing == "met":
            met = step
        else:
            missed = step
    return _result(met, missed, steps, precision, confidence, highest_rate)


def _result(
    met: Step | None,
    missed: Step | None,
    steps: list[Step],
    precision: float,
    confidence: float,
    highest_rate: float,
) -> SearchResult:
    narrow = (
        met is not None
        and missed is not None
        and missed.rate - met.rate <= precision * met.rate * (1 + 1e-9)
    )
    decided = narrow and missed is not None and missed.standing == "missed"
    if met is None:
        told = "no rate that was tried met the SLO"
    elif missed is None:
        reached = met.rate >= highest_rate
        told = f"met at {met.rate:.4g}/s, " + (
            "the highest rate allowed" if reached else "and no higher rate was tried in time"
        )
        decided = reached
    else:
        told = f"met at {met.rate:.4g}/s, {missed.standing} at {missed.rate:.4g}/s"
        if not narrow:
            told += "; the time ended before it could be narrowed down"
        elif not decided:
            told += ": longer or more trials would decide it"
    return SearchResult(
        highest_met=None if met is None else met.rate,
        lowest_not_met=None if missed is None else missed.rate,
        decided=decided,
        confidence=confidence,
        steps=tuple(steps),
        told=told,
    )


def _decide(
    trial: Callable[[float], Trial],
    rate: float,
    miss: float,
    most_trials: int,
    may: Callable[[], bool],
) -> Step:
    """miss: the error that all looks together may have on either side."""
    trials: list[Trial] = []
    while True:
        trials.append(trial(rate))
        looks_before = max(1, most_trials - 1)
        step = _step(rate, trials, miss / 2 / (1 if len(trials) == most_trials else looks_before))
        if step.standing != "undecided" or len(trials) >= most_trials or not may():
            return step
        below = any(share.good < share.wanted * share.judged for share in step.shares)
        if below and len(trials) >= _GIVEN_UP_AFTER:
            return step


def _step(rate: float, trials: Sequence[Trial], miss: float) -> Step:
    """All demands are to be met; the interval shown is of the one that stands worst."""
    found: list[tuple[Standing, float, float]] = []
    shares: list[Share] = []
    for parts in zip(*(one.judged for one in trials), strict=True):
        outcomes = [part.outcomes for part in parts]
        good = sum(sum(one.good) for one in outcomes)
        judged = sum(len(one.good) for one in outcomes)
        number = effective_number(outcomes, miss)
        wanted = parts[0].wanted
        low, high = share_interval(good / judged if judged else 0.0, number, miss)
        standing: Standing = "undecided"
        if low >= wanted:
            standing = "met"
        elif high < wanted:
            standing = "missed"
        found.append((standing, low, high))
        shares.append(
            Share(name=parts[0].name, wanted=wanted, good=good, judged=judged, effective=number)
        )
    order: tuple[Standing, ...] = ("missed", "undecided", "met")
    worst = min(found, key=lambda one: order.index(one[0]), default=("undecided", 0.0, 1.0))
    kept_up = not (any(one.saturated for one in trials) or _grows(trials))
    return Step(
        rate=rate,
        standing=worst[0] if kept_up else "missed",
        trials=len(trials),
        shares=tuple(shares),
        low=worst[1],
        high=worst[2],
        kept_up=kept_up,
    )


def _grows(trials: Sequence[Trial]) -> bool:
    came, ended = sum(one.came for one in trials), sum(one.ended for one in trials)
    return came - ended > max(_GROWS * came, _DEVIATIONS * math.sqrt(came))
