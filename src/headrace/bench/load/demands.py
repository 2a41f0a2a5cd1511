"""An SLO as shares of requests, which is what a search can decide and a command can require.

A condition of each request is to hold for a share of them, the attainment. A percentile is one,
too: `ttft:p95<300ms` says that 95 % of requests are to be below. Means and percentiles of pooled
gaps are not, and a search refuses them.
"""

from __future__ import annotations

import msgspec

from headrace.bench.goodput import Goodput, judge
from headrace.bench.load.search import Share
from headrace.bench.record import RunRecord
from headrace.bench.slo import POOLED, RATES, Condition, Slo
from headrace.errors import ConfigError


def check_demands(slo: Slo) -> None:
    """Raises ConfigError for a condition that no share of requests can tell."""
    for condition in slo.of_all:
        if condition.over == "mean" or condition.metric in POOLED:
            raise ConfigError(
                f"--search with {condition.text}: it is not a matter of how many requests meet it; "
                "write ttft:500 or tpot:p95<50ms"
            )


def shares(slo: Slo, attainment: float, run: RunRecord) -> list[Share]:
    """How a run stands: one of all conditions of each request, one for each percentile."""
    found = []
    if slo.of_each:
        found.append(_share("each request", attainment, Slo(slo.of_each), run))
    for condition in slo.of_all:
        found.append(_share(condition.text, _wanted(condition), Slo((_each(condition),)), run))
    return found


def _share(name: str, wanted: float, slo: Slo, run: RunRecord) -> Share:
    got = judge(slo, [record for record in run.requests if record.measured], 0.0)
    return Share(name=name, wanted=wanted, good=got.good or 0, judged=got.judged)


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
