"""Limits of what costs nothing: of keys, and of addresses, which keys are easier to come by than.

A target is free if its price is known to be 0 and it is no engine of one's own. Where a request
may go to free targets and to others, free ones are left out once the limit is reached; where there
are no others it is refused. It is one request however many free targets it was answered by: a model
made of others asks several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from headrace.gateway.access import ADMIN, MASTER
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Actual, Caller, Demand
from headrace.gateway.accounts.errors import LimitExceededError
from headrace.gateway.accounts.meter import LimitName, Meter
from headrace.gateway.accounts.reservation import Reservation, Settled
from headrace.gateway.accounts.terms import Level
from headrace.gateway.accounts.window import Window
from headrace.gateway.client_address import ADDRESS, UNKNOWN
from headrace.gateway.guests import ANONYMOUS
from headrace.gateway.routing.decision import Decision, LeftOut
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.reach import may_follow
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.aside import Aside
from headrace.gateway.settings.free_tier import FreeTierSettings
from headrace.gateway.targets.target import Target

if TYPE_CHECKING:  # imported where the file uses them
    from headrace.gateway.serving.composed.way import Way

_MINUTE = Window("1m")
# By the calendar, so that everybody knows when there is room again.
_DAY = Window("1d", True)


class Asking(Protocol):
    """A request, as far as it says whose it is."""

    @property
    def caller(self) -> Caller | None:
        """None where nobody has an account."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case, with the client's address."""


class FreeHold(NamedTuple):
    """ask, decision: with free targets left out where the limit is reached. reservation: None where
    nobody free may be asked."""

    ask: RoutingQuery
    decision: Decision
    reservation: Reservation | None = None


class FreeTier:
    """accounts: where it is counted, also where no keys are asked for."""

    def __init__(self, settings: FreeTierSettings, accounts: Accounts) -> None:
        self._settings = settings
        self._accounts = accounts
        self._ending: set[asyncio.Future[Settled]] = set()

    async def hold(
        self,
        router: Router,
        ask: RoutingQuery,
        decision: Decision,
        asking: Asking,
        way: Way | None = None,
    ) -> FreeHold:
        """Before anybody is asked. way: of a model made of others; it is told what is left out.
        Raises LimitExceededError, StoresDownError."""
        caller, address = asking.caller, asking.headers.get(ADDRESS, UNKNOWN)
        answering = decision.candidates if way is None else decision.candidates + way.may_answer
        reached = answering + may_follow(router, answering, ask)
        if way is not None:
            reached += way.besides.candidates
        is_any_free = any(one.target.is_given_away for one in reached)
        if not is_any_free or caller is MASTER or caller is ADMIN:
            return FreeHold(ask, decision)
        asks = Caller(key_id=ANONYMOUS) if caller is None else caller
        # What it may ask was looked at before, by all names of the model.
        meters = self._meters(caller, address)
        asks = msgspec.structs.replace(asks, meters=meters, allowed_models=())
        try:
            held = await self._accounts.reserve(asks, Demand(model=ask.wanted.models[0]))
        except LimitExceededError as error:
            if answering and all(one.target.is_given_away for one in answering):
                raise
            why = f"it is free of charge, and {error}", error.retry_after_s
            if way is not None:
                way.leave_out_free(why)
            return FreeHold(ask._replace(no_free=why), _without_free(decision, why))
        return FreeHold(ask, decision, held)

    def end(self, hold: FreeHold, served_by: Target | None, asides: Sequence[Aside] = ()) -> None:
        """It counts if a free target answered, be it a question on the way (`asides`). By a task of
        its own, which a client that goes does not end."""
        reservation = hold.reservation
        if reservation is None:
            return
        answered = [one.target for one in asides if one.outcome != "failed"]
        answered += [] if served_by is None else [served_by]
        free = any(one.is_given_away for one in answered)
        task = asyncio.ensure_future(
            reservation.settle(Actual()) if free else reservation.release()
        )
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    @property
    def is_busy(self) -> bool:
        """Whether holds are being ended."""
        return bool(self._ending)

    async def drain(self, within_s: float) -> None:
        """Wait so long for holds that are being ended; before accounts are closed."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=within_s)

    def _meters(self, caller: Caller | None, address: str) -> tuple[Meter, ...]:
        whose: list[tuple[Level, str]] = []
        if "key" in self._settings.per and caller is not None and caller.key_id != ANONYMOUS:
            whose.append(("key", caller.key_id))
        if "address" in self._settings.per:
            whose.append(("address", address))
        limits: tuple[tuple[LimitName, int | None, Window], ...] = (
            ("free_rpm", self._settings.rpm, _MINUTE),
            ("free_rpd", self._settings.rpd, _DAY),
        )
        return tuple(
            Meter(
                id=f"{level}|{name}|{limit_name}",
                level=level,
                name=name,
                limit_name=limit_name,
                kind="rate",
                unit="requests",
                amount=amount,
                window=window,
            )
            for level, name in whose
            for limit_name, amount, window in limits
            if amount is not None
        )


def _without_free(decision: Decision, why: tuple[str, float | None]) -> Decision:
    out = tuple(
        LeftOut(one.target.name, one.model, *why, rate_limited=True)
        for one in decision.candidates
        if one.target.is_given_away
    )
    return decision._replace(
        candidates=tuple(one for one in decision.candidates if not one.target.is_given_away),
        left_out=(*decision.left_out, *out),
    )
