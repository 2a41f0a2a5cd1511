"""The highest rate at which an SLO is met, by bisection.

At each rate requests are judged one by one: what is to be met is that a share of all requests the
server would get at this rate is good. A rate is met or missed once the exact binomial interval
(Clopper and Pearson, 1934) of the good share lies on one side of the wanted one; until then its
trial is repeated, and the trials are pooled. Looking several times would decide too often, so the
error is divided among the looks. A rate whose trials end undecided counts as not met, and the
result says so. Knows no requests: a trial is a function; clock and limits are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from headrace.bench.proportion import proportion_interval
from headrace.bench.statistics import CONFIDENCE

Standing = Literal["met", "missed", "undecided"]

DEFAULT_ATTAINMENT = 0.9
DEFAULT_PRECISION = 0.05
MOST_TRIALS = 5
# Doublings of the first rate: a factor of a million.
_MOST_STEPS_UP = 20


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One demand and how it stands: good of judged requests, where `wanted` of all are to be."""

    name: str
    wanted: float
    good: int
    judged: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One rate: its trials pooled. low, high: the interval of the good share that decided."""

    rate: float
    standing: Standing
    trials: int
    shares: tuple[Share, ...]
    low: float
    high: float


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """highest_met: None where no rate met it. lowest_not_met: missed or undecided; None: none.

    decided: both ends of the bracket are, and it is as narrow as was asked. told: in a sentence.
    """

    highest_met: float | None
    lowest_not_met: float | None
    decided: bool
    confidence: float
    steps: tuple[Step, ...]
    told: str


def search(
    trial: Callable[[float], Sequence[Share]],
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

    trial: runs a load at a rate and tells each demand's share. No trial begins after the budget.
    """
    ends_s = clock_s() + budget_s
    steps: list[Step] = []

    def may() -> bool:
        return go_on() and clock_s() < ends_s

    def at(rate: float) -> Step:
        step = _decide(trial, rate, confidence, most_trials, may)
        steps.append(step)
        return step

    met: Step | None = None
    missed: Step | None = None
    rate = min(first_rate, highest_rate)
    for _ in range(_MOST_STEPS_UP):
        if not may():
            break
        step = at(rate)
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
        step = at((met.rate + missed.rate) / 2)
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
        told = "no rate that was tried met it"
    elif missed is None:
        reached = met.rate >= highest_rate
        told = f"met at {met.rate:.4g}/s, " + (
            "the highest that was allowed" if reached else "and nothing higher was tried in time"
        )
        decided = reached
    else:
        told = f"met at {met.rate:.4g}/s, {missed.standing} at {missed.rate:.4g}/s"
        if not narrow:
            told += "; time ended before it was known more closely"
        elif not decided:
            told += ": more requests a trial would decide it"
    return SearchResult(
        highest_met=None if met is None else met.rate,
        lowest_not_met=None if missed is None else missed.rate,
        decided=decided,
        confidence=confidence,
        steps=tuple(steps),
        told=told,
    )


def _decide(
    trial: Callable[[float], Sequence[Share]],
    rate: float,
    confidence: float,
    most_trials: int,
    may: Callable[[], bool],
) -> Step:
    pooled: dict[str, Share] = {}
    trials = 0
    # Either side may be decided wrongly at each look.
    miss = (1 - confidence) / 2 / most_trials
    while True:
        for share in trial(rate):
            before = pooled.get(share.name)
            pooled[share.name] = share if before is None else _pooled(before, share)
        trials += 1
        step = _step(rate, trials, tuple(pooled.values()), miss)
        if step.standing != "undecided" or trials >= most_trials or not may():
            return step


def _pooled(before: Share, share: Share) -> Share:
    return msgspec.structs.replace(
        before, good=before.good + share.good, judged=before.judged + share.judged
    )


def _step(rate: float, trials: int, shares: tuple[Share, ...], miss: float) -> Step:
    """All demands are to be met; the interval shown is of the one that stands worst."""
    found: list[tuple[Standing, float, float]] = []
    for share in shares:
        low, high = proportion_interval(share.good, share.judged, miss)
        standing: Standing = "undecided"
        if low >= share.wanted:
            standing = "met"
        elif high < share.wanted:
            standing = "missed"
        found.append((standing, low, high))
    order: tuple[Standing, ...] = ("missed", "undecided", "met")
    worst = min(found, key=lambda one: order.index(one[0]), default=("undecided", 0.0, 1.0))
    return Step(
        rate=rate, standing=worst[0], trials=trials, shares=shares, low=worst[1], high=worst[2]
    )
