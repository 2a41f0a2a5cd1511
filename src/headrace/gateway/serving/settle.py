"""What was held for a request becomes what it took."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.gateway.accounts.caller import Actual
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.accounts.terms import MAX_AMOUNT
from headrace.gateway.serving.aside import Aside
from headrace.protocol.neutral.usage import TokenUsage


async def settle(
    held: Reservation | None,
    usage: TokenUsage | None,
    cost_nusd: int | None,
    asides: Sequence[Aside],
    *,
    was_sent: bool,
    model: str = "",
) -> None:
    """With what was paid for besides. A cost nobody knows makes the sum one. usage: None where
    nothing was answered; with nothing paid besides, all that was held is given back, but for the
    request itself where a provider was sent it (`was_sent`). model: who answered, or was asked
    last; "" where that is not known."""
    if held is None:
        return
    if usage is None and not asides:
        if was_sent:
            await held.settle(Actual(model=model, cost_nusd=0))
        else:
            await held.release()
        return
    taken = [] if usage is None else [_taken(model, usage, cost_nusd)]
    for one in asides:
        requests = 0 if taken else 1
        taken.append(_taken(one.model, one.usage, one.cost_nusd, requests))
    await held.settle(*taken)


async def settle_unknown(held: Reservation | None, *, was_sent: bool) -> None:
    """What a fault kept from being settled: nobody knows what it took, so that budgets keep what
    was held as used. Given back where no provider was sent it; one that has ended is left alone."""
    if held is None or not held.is_open:
        return
    if was_sent:
        await held.settle(Actual())
    else:
        await held.release()


def _taken(model: str, usage: TokenUsage, cost_nusd: int | None, requests: int = 1) -> Actual:
    """More than accounts can count is the most they can."""
    return Actual(
        model=model,
        requests=requests,
        input_tokens=min(usage.prompt_tokens, MAX_AMOUNT),
        output_tokens=min(usage.completion_tokens, MAX_AMOUNT),
        cost_nusd=None if cost_nusd is None else min(cost_nusd, MAX_AMOUNT),
    )
