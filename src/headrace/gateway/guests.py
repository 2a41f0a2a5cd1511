"""Callers without a key: each is known by its address, and has limits of its own."""

from __future__ import annotations

from collections import OrderedDict

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.meter import meters_of
from headrace.gateway.accounts.terms import Limits, Terms

ANONYMOUS = "anonymous"

# Callers that are made and kept; what they used is kept by the counters.
_MOST = 10_000


class Guests:
    """limits: of each address."""

    def __init__(self, limits: tuple[Limits, ...]) -> None:
        self._terms = Terms(limits=limits)
        self._made: OrderedDict[str, Caller] = OrderedDict()

    def caller(self, address: str) -> Caller:
        """Who comes from there."""
        found = self._made.get(address)
        if found is None:
            meters = tuple(meters_of("address", address, self._terms))
            found = self._made[address] = Caller(key_id=ANONYMOUS, meters=meters)
            if len(self._made) > _MOST:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(address)
        return found
