"""An SLO as shares of requests, which is what a search can decide and a command can require.

A condition of each request is to hold for a share of them, the attainment. A percentile is one,
too: `ttft:p95<300ms` says that 95 % of requests are to be below. Means and percentiles of pooled
gaps are not, and a search refuses them.
"""

from __future__ import annotations

import msgspec

from headrace.bench.goodput import Goodput, judge
from headrace.bench.load.evidence import Outcomes
from headrace.bench.load.search import Judged, Trial
from headrace.bench.record import RequestRecord, RunRecord
from headrace.bench.slo import POOLED, RATES, Condition, Slo
from headrace.errors import ConfigError

FILLING, ENDING = 0.2, 0.05
"""Parts of a trial, at its begin and its end, whose requests are not judged: the queue is not full
yet, and the last to come have the server for themselves."""


def check_demands(slo: Slo, attainment: float = 0.0) -> None:
    """Raises ConfigError for a condition that no share of requests can tell, or no number shows."""
    for condition in slo.of_all:
        if condition.over == "mean" or condition.metric in POOLED:
            raise ConfigError(
                f"--search with {condition.text}: a search needs a limit that a number of "
                "requests meets; write ttft:500 or tpot:p95<50ms"
            )
    if strictest(slo, attainment) >= 1:
        raise ConfigError(
            "--search for all of the requests: no number of good requests shows that all "
            "will be good; use less than 1, such as --attainment 0.99"
        )


def strictest(slo: Slo, attainment: float) -> float:
    """The greatest share of requests that any demand wants good."""
    each = [attainment] if slo.of_each else []
    return max([*each, *(_wanted(one) for one in slo.of_all)], default=attainment)


def judged_trial(slo: Slo, attainment: float, run: RunRecord, *, saturated: bool) -> Trial:
    """How a trial went: one demand of all conditions of each request, one for each percentile."""
    records = sorted((one for one in run.requests if one.measured), key=lambda one: one.intended_ns)
    if not records:
        return Trial((), saturated)
    first, last = records[0].intended_ns, records[-1].intended_ns
    begin = first + FILLING * (last - first)
    end = last - ENDING * (last - first)
    came = [one for one in records if begin <= one.intended_ns <= end]
    ended = sum(one.end_ns is not None and begin <= one.end_ns <= end for one in records)
    waited = sum((one.end_ns or last) - one.intended_ns for one in came)
    in_flight = waited / (end - begin) if end > begin else 1.0
    demands = [("each request", attainment, Slo(slo.of_each))] if slo.of_each else []
    demands += [(one.text, _wanted(one), Slo((_each(one),))) for one in slo.of_all]
    judged = tuple(
        Judged(name, wanted, Outcomes(_good(demand, came), in_flight))
        for name, wanted, demand in demands
    )
    return Trial(judged, saturated, len(came), ended)


def _good(slo: Slo, records: list[RequestRecord]) -> tuple[bool, ...]:
    """Of those that met or missed it, in the same order."""
    one_by_one = (judge(slo, [record], 0.0) for record in records)
    return tuple(bool(one.good) for one in one_by_one if one.judged)


def _each(condition: Condition) -> Condition:
    return msgspec.structs.replace(condition, over="each", quantile=None)


def _wanted(condition: Condition) -> float:
    assert condition.quantile is not None
    return 1 - condition.quantile if condition.metric in RATES else condition.quantile


def is_met(goodput: Goodput, attainment: float) -> bool:
    """Whether a run met its SLO as it was measured; what nobody can tell is not met."""
    if goodput.fraction is not None and goodput.fraction < attainment:
        return False
    return goodput.met is not False and not (goodput.fraction is None and goodput.met is None)
