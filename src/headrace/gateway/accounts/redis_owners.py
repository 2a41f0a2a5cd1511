"""Reservations in Redis of processes that have ended: released before their lease ends."""

from __future__ import annotations

from headrace.gateway.accounts.redis_link import RedisLink
from headrace.gateway.accounts.redis_script import GIVE_BACK

# What a process had sent when it ended Redis may do a moment later. The first pass is at once, the
# others are of ticks, so that the last comes a second later at least.
_PASSES = 3


class EndedOwners:
    """Processes that have ended, whose reservations are released.

    prefix: of all keys in Redis. The ids of a process's reservations begin with its owner id.
    """

    def __init__(self, link: RedisLink, prefix: str) -> None:
        self._link = link
        self._prefix = prefix
        self._passes: dict[str, int] = {}
        """Those still to be made, by owner."""

    def add(self, owner: str) -> None:
        """It reserves nothing more."""
        self._passes[owner] = _PASSES

    async def give_back(self) -> int:
        """One pass for each owner; returns the number of released reservations. Raises
        RedisLostError, after which the pass has to be repeated."""
        given_back = 0
        for owner, passes in list(self._passes.items()):
            given_back += await self._give_back_of(owner)
            if passes > 1:
                self._passes[owner] = passes - 1
            else:
                self._passes.pop(owner, None)
        return given_back

    async def _give_back_of(self, owner: str) -> int:
        leases, records = f"{self._prefix}leases", f"{self._prefix}r:"
        given_back, cursor = 0, "0"
        while True:
            cursor, count = await self._link.run(GIVE_BACK, [leases], [cursor, owner, records])
            given_back += int(count)
            if cursor == "0":
                return given_back
