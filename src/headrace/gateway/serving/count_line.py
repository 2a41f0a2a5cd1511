"""The request log's line for a request to count tokens; the ledger has none."""

from __future__ import annotations

import msgspec

from headrace.gateway.serving.entry import Entry, Outcome
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.line import line_of
from headrace.gateway.serving.serving import Serving
from headrace.gateway.targets.target import Target

_S_PER_NS = 1e-9


def count_line(
    serving: Serving,
    incoming: Incoming,
    outcome: Outcome,
    status: int,
    *,
    target: Target | None = None,
    error: str = "",
) -> Entry:
    """`target` is the one that counted; None for an estimate or if nothing was counted."""
    ended_ns = serving.clock_ns()
    lasted_s = (ended_ns - incoming.received_ns) * _S_PER_NS
    entry = line_of(
        incoming, None, [], arrived_s=serving.wall_s() - lasted_s, ended_ns=ended_ns,
        outcome=outcome, status=status, error=error, usage=None, usage_from="none", cost_nusd=0,
        finish=None, overhead_us=0, assigned="",
    )  # fmt: skip
    if target is None:
        return entry
    return msgspec.structs.replace(entry, target=target.name, provider=target.provider.name)
