"""The share of a key's limits and budgets that one request holds, from before it is sent until it
is settled."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Caller, Demand
from headrace.gateway.accounts.errors import AccountsError, LimitExceededError, StoresDownError
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.accounts.terms import MAX_AMOUNT
from headrace.gateway.routing.eligible import Reason
from headrace.gateway.serving.aside import Aside
from headrace.gateway.serving.ending import Bill
from headrace.gateway.serving.settle import Took, settle, settle_each, settle_unknown

# Retry time where room comes as requests end.
_ENDED_AGAIN_S = 1.0


class Holding:
    """One request's hold; holds nothing if keys are not required. Always call `close`."""

    def __init__(self, accounts: Accounts | None, caller: Caller | None) -> None:
        self._accounts = accounts
        self._caller = caller
        self._taken: Reservation | None = None
        self._demand: Demand | None = None
        self._again: list[Reservation] = []

    def keep(self, taken: Reservation | None) -> None:
        """Adopt a reservation made elsewhere."""
        self._taken = taken

    async def take(self, demand: Demand) -> None:
        """Reserve before any target is tried. Raises AccountsError, and then holds nothing."""
        assert self._accounts is not None
        assert self._caller is not None
        self._taken = await self._accounts.reserve(self._caller, demand)
        self._demand = demand

    async def take_again(self, paid: Sequence[Took]) -> Reason | None:
        """Reserve what failed attempts used, so that the whole hold is there for the next target.
        Return why there is no room, or None if there was."""
        if self._demand is None or self._accounts is None or self._caller is None:
            return None
        try:
            for charge in paid:
                more = _more(self._demand, charge)
                self._again.append(await self._accounts.reserve(self._caller, more))
        except AccountsError as error:
            return Reason(str(error), _room_in_s(error))
        return None

    async def settle(
        self, bill: Bill, asides: Sequence[Aside], *, was_sent: bool, model: str
    ) -> None:
        """See `settle`."""
        await settle(self._taken, bill, asides, was_sent=was_sent, model=model)

    async def settle_each(self, took: Sequence[Took], *, sent_as: str | None) -> None:
        """See `settle_each`."""
        if self._taken is not None:
            await settle_each(self._taken, took, sent_as=sent_as)

    async def close(self, *, was_sent: bool) -> None:
        """Give back what `take_again` took. A request that is not settled goes to
        `settle_unknown`; `was_sent` says whether a target was sent it."""
        if self._taken is not None and self._taken.is_open:
            await settle_unknown(self._taken, was_sent=was_sent)
        for reservation in self._again:
            await reservation.release()


def _more(demand: Demand, paid: Took) -> Demand:
    """The demand of a failed attempt, besides the request's own. It is still the same request."""
    names = demand.names
    if names is not None:
        names = {paid.model: names.get(paid.model, (paid.model,))}
    # If the cost is unknown, it may be all that is held.
    cost = demand.most_cost_nusd if paid.cost_nusd is None else paid.cost_nusd
    return msgspec.structs.replace(
        demand,
        names=names,
        requests=0,
        input_tokens=min(paid.usage.prompt_tokens, MAX_AMOUNT),
        most_output_tokens=min(paid.usage.completion_tokens, MAX_AMOUNT),
        most_cost_nusd=None if cost is None else min(cost, MAX_AMOUNT),
    )


def _room_in_s(error: AccountsError) -> float | None:
    """When to try again; None if waiting does not help."""
    if isinstance(error, StoresDownError):
        return error.retry_after_s
    if not isinstance(error, LimitExceededError):
        return None
    if error.retry_after_s is None and error.used + error.wanted <= error.limit:
        return _ENDED_AGAIN_S
    return error.retry_after_s
