"""A request's ledger line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headrace.gateway.routing.decision import LeftOut
from headrace.gateway.serving.after_failure import Tried
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.attempt_entries import failed_attempts
from headrace.gateway.serving.entry import AttemptEntry, Entry, Outcome
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.sent import Unanswered
from headrace.gateway.serving.target_failures import reasons_of
from headrace.protocol.neutral.reply import Finish
from headrace.protocol.neutral.usage import TokenUsage

_MS_PER_NS = 1e-6


def line_of(
    incoming: Incoming,
    opened: Opened | None,
    tried: list[Tried],
    *,
    arrived_s: float,
    ended_ns: int,
    outcome: Outcome,
    status: int,
    error: str,
    usage: TokenUsage | None,
    usage_from: Literal["provider", "estimated", "none"],
    cost_nusd: int | None,
    finish: Finish | None,
    overhead_us: int,
    assigned: str,
    unanswered: Unanswered | None = None,
    skipped: Sequence[LeftOut] = (),
    dropped: tuple[str, ...] = (),
) -> Entry:
    """Make the line.

    `opened` is the answer, None if no target answered; `tried` holds the attempts that failed
    before it; `unanswered` is the attempt under way at the end; `skipped` holds the targets that
    were not tried; `dropped` what of the answer the client did not get.
    """
    caller = incoming.caller
    target = None if opened is None else opened.candidate.target
    if unanswered is not None:
        target = unanswered.candidate.target
    received_ns = incoming.received_ns
    attempts = failed_attempts(tried) if tried else ()
    first_token_ms = None
    if opened is not None:
        first_token_ms = (opened.first_ns - received_ns) * _MS_PER_NS
        attempts += (
            AttemptEntry(
                target=opened.candidate.target.name,
                began_ms=(opened.sent_ns - received_ns) * _MS_PER_NS,
                lasted_ms=(ended_ns - opened.sent_ns) * _MS_PER_NS,
                status=200,
            ),
        )
    if unanswered is not None:
        attempts += (
            AttemptEntry(
                target=unanswered.candidate.target.name,
                began_ms=(unanswered.sent_ns - received_ns) * _MS_PER_NS,
                lasted_ms=(ended_ns - unanswered.sent_ns) * _MS_PER_NS,
                failure="client_gone" if outcome == "client_gone" else "timeout",
                message=error,
            ),
        )
    return Entry(
        id=incoming.id,
        at_s=arrived_s,
        dialect=incoming.side.name,
        operation=incoming.operation,
        model=incoming.model,
        target=None if target is None else target.name,
        provider=None if target is None else target.provider.name,
        outcome=outcome,
        status=status,
        stream=incoming.stream,
        attempts=attempts,
        usage=usage,
        usage_from=usage_from,
        cost_nusd=cost_nusd,
        finish=finish,
        first_token_ms=first_token_ms,
        total_ms=(ended_ns - received_ns) * _MS_PER_NS,
        overhead_us=overhead_us,
        organisation="" if caller is None else caller.organisation or "",
        team="" if caller is None else caller.team or "",
        user="" if caller is None else caller.user or "",
        key="" if caller is None else caller.key_id,
        tags=() if caller is None else caller.tags,
        error=error,
        variant=assigned if opened is None else opened.candidate.variant,
        assigned=assigned,
        ignored=() if opened is None else opened.ready.losses.all,
        skipped=reasons_of(skipped) if skipped else (),
        dropped=dropped,
    )
