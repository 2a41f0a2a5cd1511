"""What a request comes to once it is over: what it took, and by whose name it counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from headrace.gateway.serving.after_failure import Tried
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.bill import cost_nusd, standard_nusd
from headrace.gateway.serving.sent import Unanswered
from headrace.gateway.serving.tally import Tally
from headrace.protocol.neutral.dialect import ToolUseReader
from headrace.protocol.neutral.usage import TokenUsage


class Bill(NamedTuple):
    """usage: None where nothing was asked of anybody. cost_nusd: None where nobody knows; then
    standard_nusd is what it would be at the standard service tier, as far as that is known."""

    usage: TokenUsage | None
    usage_from: Literal["provider", "estimated", "none"]
    cost_nusd: int | None
    standard_nusd: int = 0


_NOTHING = Bill(None, "none", None)


def bill_of(opened: Opened | None, tally: Tally | None, unanswered: Unanswered | None) -> Bill:
    """opened: who answered; None with a tally for an answer from the cache, which costs nothing.
    unanswered: who was still being asked when the client left or the time was over."""
    if tally is not None:
        usage, usage_from = tally.usage
        reader = None if opened is None else opened.reader
        if usage_from == "estimated" and isinstance(reader, ToolUseReader) and reader.tools_used:
            usage = msgspec.structs.replace(usage, is_incomplete=True)
        if opened is None:
            return Bill(usage, usage_from, 0)
        price, asked = opened.candidate.target.price, opened.ready.service_tier
        if usage_from == "estimated" and opened.ready.goes_on:
            cost = None  # what came is not all that it writes
        else:
            cost = cost_nusd(usage, price, tally.service_tier, asked_tier=asked)
        return Bill(usage, usage_from, cost, standard_nusd(usage, price) if cost is None else 0)
    if unanswered is not None:
        return Bill(unanswered.usage, "estimated", unanswered.cost_nusd)
    return _NOTHING


def sent_as(tried: Iterable[Tried]) -> str | None:
    """The model of the last attempt that failed and a provider may have seen."""
    return next((one.model for one in reversed(list(tried)) if one.was_sent), None)
