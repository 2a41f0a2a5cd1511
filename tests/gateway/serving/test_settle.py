"""What was held is settled, also of what accounts cannot count and after a fault."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headrace.gateway.accounts.caller import Actual, Demand
from headrace.gateway.accounts.reservation import Held, Reservation, Settled
from headrace.gateway.accounts.terms import MAX_AMOUNT
from headrace.gateway.serving.ending import Bill
from headrace.gateway.serving.settle import settle, settle_unknown
from headrace.protocol.neutral.usage import TokenUsage


def held(ends: list[Sequence[Actual]]) -> Reservation:
    async def end(_held: Held, actual: Sequence[Actual]) -> Settled:
        ends.append(actual)
        return Settled(first=True, counted=True)

    return Reservation(Held("r", (), 0, Demand(model="m")), end, deque())


def only(ends: list[Sequence[Actual]]) -> Actual:
    (found,) = ends
    (actual,) = found
    return actual


async def test_more_than_accounts_can_count_is_the_most_they_can() -> None:
    ends: list[Sequence[Actual]] = []
    usage = TokenUsage(input_tokens=2**61, output_tokens=3)
    await settle(held(ends), Bill(usage, "provider", 2**62), (), was_sent=True)
    actual = only(ends)
    assert (actual.input_tokens, actual.output_tokens) == (MAX_AMOUNT, 3)
    assert actual.cost_nusd == MAX_AMOUNT


async def test_what_a_fault_kept_open_counts_as_held_where_a_provider_was_sent_it() -> None:
    ends: list[Sequence[Actual]] = []
    reservation = held(ends)
    await settle_unknown(reservation, was_sent=True)
    await settle_unknown(reservation, was_sent=True)
    assert only(ends).cost_nusd is None, "a budget keeps what was reserved"
    ends.clear()
    await settle_unknown(held(ends), was_sent=False)
    assert ends == [()]
