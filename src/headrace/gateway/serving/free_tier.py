"""Rate limits for free models, per key and per address (keys are cheap to obtain).

A target is free if its price is known to be 0 and it is not the operator's own engine. If a request
may go to free targets and to others, free ones are left out once the limit is reached; if there are
no others, it is refused. It counts as one request however many free targets it calls, as a composed
model may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import ADMIN, MASTER, Actual, Caller, Demand
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

if TYPE_CHECKING:  # imported only where the configuration uses them
    from headrace.gateway.serving.composed.way import Way

_MINUTE = Window("1m")
# By the calendar, so that everybody knows when requests are allowed again.
_DAY = Window("1d", True)


class Asking(Protocol):
    """A request, as far as the free tier looks at it."""

    @property
    def caller(self) -> Caller | None:
        """None if keys are not required."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case, with the client's address."""


class FreeHold(NamedTuple):
    """The free tier's hold for a request, and the targets that it may still use."""

    ask: RoutingQuery
    """The routing query, without free targets once the limit is reached."""
    decision: Decision
    """The routing decision, without free targets once the limit is reached."""
    reservation: Reservation | None = None
    """None if no free target may be tried."""


class FreeTier:
    """Counts requests to free models in `accounts`, also where keys are not required."""

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
        """Hold one request before any target is tried. `way` is the plan for a composed model,
        which is told to leave out free targets. Raises LimitExceededError, StoresDownError."""
        caller, address = asking.caller, asking.headers.get(ADDRESS, UNKNOWN)
        answering = decision.candidates if way is None else decision.candidates + way.may_answer
        reached = answering + may_follow(router, answering, ask)
        if way is not None:
            reached += way.besides.candidates
        is_any_free = any(candidate.target.is_given_away for candidate in reached)
        if not is_any_free or caller is MASTER or caller is ADMIN:
            return FreeHold(ask, decision)
        asks = Caller(key_id=ANONYMOUS) if caller is None else caller
        # Whether the key may use the model was checked before, by all of its names.
        meters = self._meters(caller, address)
        asks = msgspec.structs.replace(asks, meters=meters, allowed_models=())
        try:
            held = await self._accounts.reserve(asks, Demand(model=ask.wanted.models[0]))
        except LimitExceededError as error:
            if answering and all(candidate.target.is_given_away for candidate in answering):
                raise
            why = f"it is free of charge, and {error}", error.retry_after_s
            if way is not None:
                way.leave_out_free(why)
            return FreeHold(ask._replace(no_free=why), _without_free(decision, why))
        return FreeHold(ask, decision, held)

    def end(self, hold: FreeHold, served_by: Target | None, asides: Sequence[Aside] = ()) -> None:
        """Settle the hold: it counts if a free target answered, be it a call beside the answer.
        A task of its own does it, so that a client that leaves does not end it."""
        reservation = hold.reservation
        if reservation is None:
            return
        answered = [aside.target for aside in asides if aside.outcome != "failed"]
        answered += [] if served_by is None else [served_by]
        free = any(target.is_given_away for target in answered)
        task = asyncio.ensure_future(
            reservation.settle(Actual()) if free else reservation.release()
        )
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    @property
    def is_busy(self) -> bool:
        """Whether holds are being settled."""
        return bool(self._ending)

    async def drain(self, within_s: float) -> None:
        """Wait up to `within_s` for holds being settled; call before accounts are closed."""
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
        LeftOut(candidate.target.name, candidate.model, *why, rate_limited=True)
        for candidate in decision.candidates
        if candidate.target.is_given_away
    )
    return decision._replace(
        candidates=tuple(
            candidate for candidate in decision.candidates if not candidate.target.is_given_away
        ),
        left_out=(*decision.left_out, *out),
    )
