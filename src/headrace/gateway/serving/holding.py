"""What one request holds of its key's limits and budgets, from before it is sent until it is
settled."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Caller, Demand
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.routing.ask import Ask
from headrace.gateway.routing.decision import Decision
from headrace.gateway.serving.aside import Aside
from headrace.gateway.serving.bill import most_nusd
from headrace.gateway.serving.ending import Bill
from headrace.gateway.serving.settle import Took, settle, settle_each, settle_unknown


class Holding:
    """Holds nothing where nobody is asked for a key. `close` has to follow, whatever happens."""

    def __init__(self, accounts: Accounts | None, caller: Caller | None) -> None:
        self._accounts = accounts
        self._caller = caller
        self._taken: Reservation | None = None
        self._asked: tuple[Demand, Ask, Decision, str | None] | None = None
        self._again: list[Reservation] = []

    def keep(self, taken: Reservation | None) -> None:
        """What somebody else has taken for it."""
        self._taken = taken

    async def take(
        self, demand: Demand, ask: Ask, decision: Decision, service_tier: str | None
    ) -> None:
        """Before anybody is sent it. Raises AccountsError, and holds nothing then."""
        assert self._accounts is not None
        assert self._caller is not None
        self._taken = await self._accounts.reserve(self._caller, demand)
        self._asked = demand, ask, decision, service_tier

    async def take_again(self, times: int) -> bool:
        """Its prompt so many times more, for whoever is asked after one that was paid and did not
        answer; whether there was room."""
        if self._asked is None or self._accounts is None or self._caller is None:
            return True
        prompt = _prompt_of(*self._asked)
        try:
            for _ in range(times):
                self._again.append(await self._accounts.reserve(self._caller, prompt))
        except AccountsError:
            return False
        return True

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


def _prompt_of(demand: Demand, ask: Ask, decision: Decision, service_tier: str | None) -> Demand:
    """Of a request's demand what its prompt may cost alone. It is the same request still."""
    prices = [one.target.price for one in decision.candidates]
    costs = [most_nusd(one, ask.input_tokens, 0, service_tier) for one in prices]
    known = [one for one in costs if one is not None]
    return msgspec.structs.replace(
        demand,
        requests=0,
        input_tokens=ask.input_tokens,
        most_output_tokens=0,
        most_cost_nusd=max(known) if known and len(known) == len(costs) else None,
    )
