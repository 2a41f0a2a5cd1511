"""A billed call whose answer nobody sees: a losing hedge, a judge, the first stage of a cascade.

It is charged to the account of the request it served and has a ledger line of its own, so that the
ledger's sum is what providers bill.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from headrace.gateway.serving.after_failure import class_of
from headrace.gateway.serving.entry import AttemptEntry, Entry, Outcome, Purpose
from headrace.gateway.serving.sent import Unanswered
from headrace.gateway.targets.target import Target
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.neutral.reply import Finish
from headrace.protocol.neutral.usage import TokenUsage

_MS_PER_NS = 1e-6
_S_PER_NS = 1e-9


class Aside(NamedTuple):
    """A billed call beside the answer. Times are readings of the gateway's clock."""

    purpose: Purpose
    model: str
    """Name it was requested by."""
    target: Target
    usage: TokenUsage
    usage_from: Literal["provider", "estimated"]
    cost_nusd: int | None
    """None if the price is unknown."""
    sent_ns: int
    first_ns: int | None
    ended_ns: int
    outcome: Outcome = "answered"
    stream: bool = False
    finish: Finish | None = None
    error: str = ""
    failure: FailureKind | None = None
    """Why it has no reply; None where it has one."""
    status: int = 200
    """HTTP status a client would get for it."""
    answered_by: str = ""
    """The model it counts for; "" for `model` itself."""


def unanswered_aside(
    unanswered: Unanswered, failure: Failure, ended_ns: int, *, stream: bool
) -> Aside:
    """The side call of an attempt that failed without a usable reply: it may be billed."""
    candidate = unanswered.candidate
    return Aside(
        purpose="attempt",
        model=candidate.model,
        target=candidate.target,
        usage=unanswered.usage,
        usage_from="estimated" if unanswered.told is None else "provider",
        cost_nusd=unanswered.cost_nusd,
        sent_ns=unanswered.sent_ns,
        first_ns=None,
        ended_ns=ended_ns,
        outcome="failed",
        stream=stream,
        error=failure.message,
        failure=failure.kind,
        status=class_of(failure).status,
    )


def with_asides(cost_nusd: int | None, asides: Iterable[Aside]) -> int | None:
    """The cost of a request with its side calls; None if the price of one is unknown."""
    for aside in asides:
        if cost_nusd is None or aside.cost_nusd is None:
            return None
        cost_nusd += aside.cost_nusd
    return cost_nusd


def aside_entry(of: Entry, aside: Aside, number: int, received_ns: int) -> Entry:
    """The ledger line of `aside`, number `number` of the request whose line is `of`."""
    lasted_ms = (aside.ended_ns - aside.sent_ns) * _MS_PER_NS
    first_ms = None
    if aside.first_ns is not None:
        first_ms = (aside.first_ns - aside.sent_ns) * _MS_PER_NS
    return msgspec.structs.replace(
        of,
        id=f"{of.id}/{number}",
        parent=of.id,
        purpose=aside.purpose,
        at_s=of.at_s + (aside.sent_ns - received_ns) * _S_PER_NS,
        model=aside.model,
        target=aside.target.name,
        provider=aside.target.provider.name,
        outcome=aside.outcome,
        status=aside.status,
        stream=aside.stream,
        attempts=(
            AttemptEntry(
                target=aside.target.name,
                began_ms=0.0,
                lasted_ms=lasted_ms,
                failure=aside.failure,
                status=None if aside.failure is not None else aside.status,
            ),
        ),
        usage=aside.usage,
        usage_from=aside.usage_from,
        cost_nusd=aside.cost_nusd,
        finish=aside.finish,
        first_token_ms=first_ms,
        total_ms=lasted_ms,
        overhead_us=0,
        cache="",
        error=aside.error,
    )
