"""What was held for a request becomes what it took."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.gateway.accounts.caller import Actual
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.serving.aside import Aside
from headrace.protocol.neutral.usage import TokenUsage


async def settle(
    held: Reservation | None,
    usage: TokenUsage | None,
    cost_nusd: int | None,
    asides: Sequence[Aside],
) -> None:
    """With what was paid for besides. A cost nobody knows makes the sum one. usage: None where
    nothing was answered; with nothing paid besides, all that was held is given back."""
    if held is None:
        return
    if usage is None and not asides:
        await held.release()
        return
    if usage is not None and not asides:
        await held.settle(
            Actual(
                input_tokens=usage.prompt_tokens,
                output_tokens=usage.completion_tokens,
                cost_nusd=cost_nusd,
            )
        )
        return
    used = [] if usage is None else [usage]
    used += [one.usage for one in asides]
    costs = [] if usage is None else [cost_nusd]
    costs += [one.cost_nusd for one in asides]
    known = [one for one in costs if one is not None]
    await held.settle(
        Actual(
            input_tokens=sum(one.prompt_tokens for one in used),
            output_tokens=sum(one.completion_tokens for one in used),
            cost_nusd=sum(known) if len(known) == len(costs) else None,
        )
    )
