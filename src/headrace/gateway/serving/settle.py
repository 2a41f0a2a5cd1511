"""Replaces what was held for a request by what it used."""

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
    """One charge of a request."""

    model: str
    """The model that is charged."""
    usage: TokenUsage
    cost_nusd: int | None
    """None if unknown; budgets then count the larger of standard_nusd and what was held."""
    standard_nusd: int = 0
    is_request: bool = False
    """Whether it counts as a request of its model, as the first charge always does."""


# Calls made on purpose; other side calls are attempts at the same request.
_REQUESTS = frozenset({"judge", "router", "stage"})


async def settle(
    held: Reservation | None,
    bill: Bill,
    asides: Sequence[Aside],
    *,
    was_sent: bool,
    model: str = "",
) -> None:
    """Settle the hold with the bill and all side calls; one unknown cost makes the total unknown.

    If nothing was answered and nothing billed, all of it is given back, except the request itself
    if a provider received it (`was_sent`). `model` answered, or was tried last; "" if unknown.
    """
    if held is None:
        return
    took = []
    if bill.usage is not None:
        took.append(Took(model, bill.usage, bill.cost_nusd, bill.standard_nusd))
    took += [
        Took(
            aside.answered_by or aside.model,
            aside.usage,
            aside.cost_nusd,
            is_request=aside.purpose in _REQUESTS,
        )
        for aside in asides
    ]
    await settle_each(held, took, sent_as=model if was_sent else None)


async def settle_each(held: Reservation, took: Sequence[Took], *, sent_as: str | None) -> None:
    """Settle with all charges of one request. `sent_as` is the model that was sent it last; None if
    it was not sent, "" if unknown."""
    if took:
        first, *others = took
        await held.settle(
            _taken(first, 1), *(_taken(charge, int(charge.is_request)) for charge in others)
        )
    elif sent_as is not None:
        await held.settle(Actual(model=sent_as, cost_nusd=0))
    else:
        await held.release()


async def settle_unknown(held: Reservation, *, was_sent: bool) -> None:
    """Close a hold that a fault kept from being settled. The usage is unknown, so budgets keep what
    was held as used if a provider received the request; otherwise it is given back."""
    if was_sent:
        await held.settle(Actual())
    else:
        await held.release()


def _taken(took: Took, requests: int) -> Actual:
    """A charge as accounts count it, limited to the most they can."""
    usage, cost = took.usage, took.cost_nusd
    return Actual(
        model=took.model,
        requests=requests,
        input_tokens=min(usage.prompt_tokens, MAX_AMOUNT),
        output_tokens=min(usage.completion_tokens, MAX_AMOUNT),
        cost_nusd=None if cost is None else min(cost, MAX_AMOUNT),
        standard_nusd=min(took.standard_nusd, MAX_AMOUNT),
    )
