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
    """The length of a trial, and the rule it follows."""

    least_s: float
    """Minimum length at any rate."""
    requests: float
    """Minimum number of requests."""
    most_s: float
    """A part of the budget."""
    rule: str
    """The rule in words."""

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
        f"Trials of {min(least_s, most_s):.4g} s: the longest of {LEAST_S:g} s, "
        f"{requests:.4g} times the E2E of a lone request ({e2e_s:.3g} s) and {_TIMES_LIMIT} "
        f"times the longest limit ({limit_s:.3g} s); at low rates until {requests:.4g} "
        "requests have been sent"
    )
    if most_s < least_s:
        rule += f"; cut to a tenth of the budget, where {least_s:.4g} s were needed"
    return TrialLength(least_s, requests, most_s, rule)
