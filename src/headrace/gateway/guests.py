"""Callers without a key: each is identified by its address, and has its own limits."""

from __future__ import annotations

from collections import OrderedDict

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.meter import meters_of
from headrace.gateway.accounts.terms import Limits, Terms

ANONYMOUS = "anonymous"

# How many callers are remembered; their usage is kept by the counters.
_MOST = 10_000


class Guests:
    """The anonymous callers. `limits` are those of each address."""

    def __init__(self, limits: tuple[Limits, ...]) -> None:
        self._terms = Terms(limits=limits)
        self._made: OrderedDict[str, Caller] = OrderedDict()

    def caller(self, address: str) -> Caller:
        """The anonymous caller for an address."""
        caller = self._made.get(address)
        if caller is None:
            meters = tuple(meters_of("address", address, self._terms))
            caller = self._made[address] = Caller(key_id=ANONYMOUS, meters=meters)
            if len(self._made) > _MOST:
                self._made.popitem(last=False)
        else:
            self._made.move_to_end(address)
        return caller
