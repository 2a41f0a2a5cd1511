"""The ledger line of a request that was refused early: its body was too large or not readable.
Requests without a key leave none: strangers must not fill the disk."""

from __future__ import annotations

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.guests import ANONYMOUS
from headrace.gateway.serving.entry import Entry, Operation
from headrace.gateway.serving.serving import Serving

_MS_PER_NS = 1e-6


def note_refused(
    serving: Serving,
    dialect: str,
    operation: Operation,
    id: str,
    caller: Caller | None,
    received_ns: int,
    status: int,
    error: str,
) -> None:
    """Write the line. `received_ns` is a reading of the monotonic clock."""
    if caller is None or caller.key_id == ANONYMOUS:
        return
    path = dict(caller.path)
    total_ns = serving.clock_ns() - received_ns
    entry = Entry(
        id=id,
        at_s=serving.wall_s() - total_ns * 1e-9,
        operation=operation,
        dialect=dialect,
        model="",
        target=None,
        provider=None,
        outcome="refused",
        status=status,
        stream=False,
        attempts=(),
        usage=None,
        usage_from="none",
        cost_nusd=None,
        finish=None,
        first_token_ms=None,
        total_ms=total_ns * _MS_PER_NS,
        overhead_us=total_ns // 1000,
        organisation=path.get("organisation", ""),
        team=path.get("team", ""),
        user=path.get("user", ""),
        key=path.get("key", ""),
        tags=caller.tags,
        error=error,
    )
    serving.on_entry(entry)
