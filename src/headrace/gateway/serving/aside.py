"""An answer that was paid for and told to nobody: a hedge that lost, a judge's word, a first stage.

It goes on the same account as the request it was wanted for and has a line of the ledger of its
own, so that the ledger's sum is what providers bill.
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
    """model: the name it was asked by; answered_by: the model that it counts for, "" for that one.
    cost_nusd: None where nobody knows the price. sent_ns, first_ns, ended_ns: of the gateway's
    clock. failure: of one without a reply; status: what a client would be told of it."""

    purpose: Purpose
    model: str
    target: Target
    usage: TokenUsage
    usage_from: Literal["provider", "estimated"]
    cost_nusd: int | None
    sent_ns: int
    first_ns: int | None
    ended_ns: int
    outcome: Outcome = "answered"
    stream: bool = False
    finish: Finish | None = None
    error: str = ""
    failure: FailureKind | None = None
    status: int = 200
    answered_by: str = ""


def unanswered_aside(
    unanswered: Unanswered, failure: Failure, ended_ns: int, *, stream: bool
) -> Aside:
    """Of an attempt that failed without a reply, or with one of no use: nobody told that it is not
    billed."""
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
    """All that was paid for a request; None where nobody knows the price of a part."""
    for one in asides:
        if cost_nusd is None or one.cost_nusd is None:
            return None
        cost_nusd += one.cost_nusd
    return cost_nusd


def aside_entry(of: Entry, aside: Aside, number: int, received_ns: int) -> Entry:
    """The line of `aside`, number `number` of the request with the line `of`."""
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
