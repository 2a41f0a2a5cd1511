"""Limits of what costs nothing: of keys, and of addresses, which keys are easier to come by than.

A target is free if its price is known to be 0. Where a request may go to free targets and to
others, free ones are left out once the limit is reached; where there are no others it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

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
from headrace.gateway.settings.free_tier import FreeTierSettings
from headrace.gateway.targets.target import Target

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
    """decision: what is left of it. reservation: None where nothing of it is free."""

    decision: Decision
    reservation: Reservation | None = None


class FreeTier:
    """accounts: where it is counted, also where no keys are asked for."""

    def __init__(self, settings: FreeTierSettings, accounts: Accounts) -> None:
        self._settings = settings
        self._accounts = accounts
        self._ending: set[asyncio.Future[Settled]] = set()

    async def hold(self, decision: Decision, asking: Asking, model: str) -> FreeHold:
        """Raises LimitExceededError, StoresDownError."""
        caller, address = asking.caller, asking.headers.get(ADDRESS, UNKNOWN)
        free = [one.target.is_free for one in decision.candidates]
        if not any(free) or caller is MASTER or caller is ADMIN:
            return FreeHold(decision)
        asks = Caller(key_id=ANONYMOUS) if caller is None else caller
        # What it may ask was looked at before, by all names of the model.
        meters = self._meters(caller, address)
        asks = msgspec.structs.replace(asks, meters=meters, allowed_models=())
        try:
            held = await self._accounts.reserve(asks, Demand(model=model))
        except LimitExceededError as error:
            if all(free):
                raise
            return FreeHold(_without_free(decision, error))
        return FreeHold(decision, held)

    def end(self, hold: FreeHold, served_by: Target | None) -> None:
        """It counts if a free target answered. By a task of its own, which a client that goes does
        not end."""
        reservation = hold.reservation
        if reservation is None:
            return
        free = served_by is not None and served_by.is_free
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


def _without_free(decision: Decision, error: LimitExceededError) -> Decision:
    for_s = error.retry_after_s
    out = tuple(
        LeftOut(one.target.name, one.model, f"it is free of charge, and {error}", for_s)
        for one in decision.candidates
        if one.target.is_free
    )
    return decision._replace(
        candidates=tuple(one for one in decision.candidates if not one.target.is_free),
        left_out=(*decision.left_out, *out),
    )
