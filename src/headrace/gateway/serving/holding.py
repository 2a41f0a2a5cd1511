"""What one request holds of its key's limits and budgets, from before it is sent until it is
settled."""

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

# Told where room comes as requests end, of which this is one.
_ENDED_AGAIN_S = 1.0


class Holding:
    """Holds nothing where nobody is asked for a key. `close` has to follow, whatever happens."""

    def __init__(self, accounts: Accounts | None, caller: Caller | None) -> None:
        self._accounts = accounts
        self._caller = caller
        self._taken: Reservation | None = None
        self._demand: Demand | None = None
        self._again: list[Reservation] = []

    def keep(self, taken: Reservation | None) -> None:
        """What somebody else has taken for it."""
        self._taken = taken

    async def take(self, demand: Demand) -> None:
        """Before anybody is sent it. Raises AccountsError, and holds nothing then."""
        assert self._accounts is not None
        assert self._caller is not None
        self._taken = await self._accounts.reserve(self._caller, demand)
        self._demand = demand

    async def take_again(self, paid: Sequence[Took]) -> Reason | None:
        """What was paid to those who did not answer, so that what was held is there for whoever is
        asked next; why there is no room for it, None where there was."""
        if self._demand is None or self._accounts is None or self._caller is None:
            return None
        try:
            for one in paid:
                more = _more(self._demand, one)
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
        """Give back what `take_again` took. See `settle_unknown` of a request that is not settled,
        of which somebody was sent something (`was_sent`)."""
        if self._taken is not None and self._taken.is_open:
            await settle_unknown(self._taken, was_sent=was_sent)
        for one in self._again:
            await one.release()


def _more(demand: Demand, paid: Took) -> Demand:
    """Besides a request's demand, by whoever was paid. It is the same request still."""
    names = demand.names
    if names is not None:
        names = {paid.model: names.get(paid.model, (paid.model,))}
    # Of what nobody knows the cost of, all that is held may be used.
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
    """When to ask again, None where waiting does not help."""
    if isinstance(error, StoresDownError):
        return error.retry_after_s
    if not isinstance(error, LimitExceededError):
        return None
    if error.retry_after_s is None and error.used + error.wanted <= error.limit:
        return _ENDED_AGAIN_S
    return error.retry_after_s
