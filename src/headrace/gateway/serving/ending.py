"""The result of a request once it is over: its bill, and the model it counts for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from headrace.gateway.serving.after_failure import Tried
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.bill import cost_nusd, standard_nusd
from headrace.gateway.serving.sent import Unanswered
from headrace.gateway.serving.tally import Tally
from headrace.protocol.neutral.dialect import ToolUseReader
from headrace.protocol.neutral.usage import TokenUsage

if TYPE_CHECKING:
    from headrace.gateway.cache.kept import Kept


class Bill(NamedTuple):
    """The usage and cost of a request."""

    usage: TokenUsage | None
    """None if no target was tried."""
    usage_from: Literal["provider", "estimated", "none"]
    cost_nusd: int | None
    """None if it is unknown."""
    standard_nusd: int = 0
    """Where the cost is unknown, that at the standard service tier, as far as known."""


_NOTHING = Bill(None, "none", None)


def bill_of(opened: Opened | None, tally: Tally | None, unanswered: Unanswered | None) -> Bill:
    """The bill of a request.

    `opened` is the answer; None with a tally stands for an answer from the cache, which is free.
    `unanswered` is the attempt under way when the client left or the time was over.
    """
    if tally is not None:
        usage, usage_from = tally.usage
        reader = None if opened is None else opened.reader
        if usage_from == "estimated" and isinstance(reader, ToolUseReader) and reader.tools_used:
            usage = msgspec.structs.replace(usage, is_incomplete=True)
        if opened is None:
            return Bill(usage, usage_from, 0)
        price, asked = opened.candidate.target.price, opened.ready.service_tier
        if usage_from == "estimated" and opened.ready.goes_on:
            cost = None  # the provider goes on writing what never arrives
        else:
            cost = cost_nusd(usage, price, tally.service_tier, asked_tier=asked)
        return Bill(usage, usage_from, cost, standard_nusd(usage, price) if cost is None else 0)
    if unanswered is not None:
        return Bill(unanswered.usage, "estimated", unanswered.cost_nusd)
    return _NOTHING


def sent_as(tried: Iterable[Tried]) -> str | None:
    """The model of the last attempt that failed and a provider may have seen."""
    return next((attempt.model for attempt in reversed(list(tried)) if attempt.was_sent), None)


def settled(
    bill: Bill, kept: Kept | None, answers: Opened | Unanswered | None, sent: str | None
) -> tuple[Bill, str]:
    """What is counted of a bill, and the model it counts for.

    `kept` is the answer from the cache, of which no tokens count; `answers` what answered or might
    have; `sent` the model of the last attempt that failed after it was sent.
    """
    if kept is not None:
        return bill._replace(usage=TokenUsage()), kept.model
    return bill, (sent or "") if answers is None else answers.candidate.model
