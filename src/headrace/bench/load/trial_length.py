"""How long a search's trials are, where nobody says it.

A share is shown by requests that might have missed it: to see fifteen that do takes
15 / (1 - share) of them. Requests that are on the server together tell of one state of it, so that
as many times the E2E of a lone request is waited, too.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.bench.load.demands import strictest
from headrace.bench.record import RunRecord
from headrace.bench.slo import Slo

ALONE_REQUESTS = 20
"""Of the run that finds the E2E of a lone request."""
LEAST_S = 30.0
_MISSING = 15
# A queue that grows takes long to reach a limit that is far away.
_TIMES_LIMIT = 10
_LIMITS = frozenset({"ttfb", "ttft", "ttfot", "e2e"})
_PART_OF_BUDGET = 10


class TrialLength(NamedTuple):
    """least_s: at any rate. requests: at least. most_s: a part of the budget. rule: in words."""

    least_s: float
    requests: float
    most_s: float
    rule: str

    def at(self, rate: float) -> float:
        """Seconds."""
        return min(max(self.least_s, self.requests / rate), self.most_s)


def trial_length(slo: Slo, attainment: float, alone: RunRecord, budget_s: float) -> TrialLength:
    """alone: a run of one request at a time."""
    took_s = [
        (one.end_ns - one.intended_ns) / 1e9
        for one in alone.requests
        if one.measured and one.failure is None and one.end_ns is not None
    ]
    e2e_s = sum(took_s) / len(took_s) if took_s else 0.0
    requests = _MISSING / (1 - strictest(slo, attainment))
    limits_s = [one.limit / 1e3 for one in slo.conditions if one.metric in _LIMITS]
    limit_s = max(limits_s, default=0.0)
    least_s = max(LEAST_S, requests * e2e_s, _TIMES_LIMIT * limit_s)
    most_s = budget_s / _PART_OF_BUDGET
    rule = (
        f"Trials of {min(least_s, most_s):.4g} s: the longest of {LEAST_S:g} s, {requests:.4g} "
        f"times the E2E of a lone request ({e2e_s:.3g} s) and {_TIMES_LIMIT} times the longest "
        f"limit ({limit_s:.3g} s); at low rates until {requests:.4g} requests have come"
    )
    if most_s < least_s:
        rule += f"; cut to a tenth of the budget, where {least_s:.4g} s were called for"
    return TrialLength(least_s, requests, most_s, rule)
