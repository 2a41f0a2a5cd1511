"""What was held for a request becomes what it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.gateway.accounts.caller import Actual
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.accounts.terms import MAX_AMOUNT
from headrace.gateway.serving.aside import Aside
from headrace.gateway.serving.ending import Bill
from headrace.protocol.neutral.usage import TokenUsage


class Took(NamedTuple):
    """What was paid for. model: who it was paid to. cost_nusd: None where nobody knows; budgets
    then count no less than standard_nusd, nor than was held. is_request: whether it counts as
    one of its model, as the first always does."""

    model: str
    usage: TokenUsage
    cost_nusd: int | None
    standard_nusd: int = 0
    is_request: bool = False


# What was asked on purpose; what else is paid for besides came of asking somebody else.
_REQUESTS = frozenset({"judge", "router", "stage"})


async def settle(
    held: Reservation | None,
    bill: Bill,
    asides: Sequence[Aside],
    *,
    was_sent: bool,
    model: str = "",
) -> None:
    """With what was paid for besides. A cost nobody knows makes the sum one. Where nothing was
    answered and nothing paid besides, all that was held is given back, but for the request itself
    where a provider was sent it (`was_sent`). model: who answered, or was asked last; "" where that
    is not known."""
    if held is None:
        return
    took = []
    if bill.usage is not None:
        took.append(Took(model, bill.usage, bill.cost_nusd, bill.standard_nusd))
    took += [
        Took(
            one.answered_by or one.model,
            one.usage,
            one.cost_nusd,
            is_request=one.purpose in _REQUESTS,
        )
        for one in asides
    ]
    await settle_each(held, took, sent_as=model if was_sent else None)


async def settle_each(held: Reservation, took: Sequence[Took], *, sent_as: str | None) -> None:
    """took: all that was paid for, of one request. sent_as: the model of who was sent it last; None
    where nobody was, and "" where that is not known."""
    if took:
        first, *others = took
        await held.settle(_taken(first, 1), *(_taken(one, int(one.is_request)) for one in others))
    elif sent_as is not None:
        await held.settle(Actual(model=sent_as, cost_nusd=0))
    else:
        await held.release()


async def settle_unknown(held: Reservation, *, was_sent: bool) -> None:
    """What a fault kept from being settled: nobody knows what it took, so that budgets keep what
    was held as used. Given back where no provider was sent it; one that has ended is left alone."""
    if was_sent:
        await held.settle(Actual())
    else:
        await held.release()


def _taken(took: Took, requests: int) -> Actual:
    """More than accounts can count is the most they can."""
    usage, cost = took.usage, took.cost_nusd
    return Actual(
        model=took.model,
        requests=requests,
        input_tokens=min(usage.prompt_tokens, MAX_AMOUNT),
        output_tokens=min(usage.completion_tokens, MAX_AMOUNT),
        cost_nusd=None if cost is None else min(cost, MAX_AMOUNT),
        standard_nusd=min(took.standard_nusd, MAX_AMOUNT),
    )
