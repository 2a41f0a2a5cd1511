"""Marks in Redis: a sorted set for each owner, of the newest ones, by the times of their ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from headrace.gateway.accounts.counters import MOST_OF_OWNER, Mark
from headrace.gateway.accounts.redis_link import RedisLink
from headrace.gateway.accounts.remembered import Remembered

# A script stops Redis while it runs.
_BATCH = 200

# KEYS: an owner's marks. ARGV: now, how many may be there, then end and mark, again and again.
_ADD = """
for i = 3, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - tonumber(ARGV[2]))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] then
  redis.call('PEXPIRE', KEYS[1], string.format('%d', tonumber(last[2]) - tonumber(ARGV[1])))
end
return 1
"""

# KEYS: an owner's marks. ARGV: now, then marks. Gives those that are known.
_KNOWN = """
local out = {}
for i = 2, #ARGV do
  local ends = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if ends and tonumber(ends) > tonumber(ARGV[1]) then out[#out + 1] = ARGV[i] end
end
return out
"""


class RedisMarks:
    """Marks in Redis, under keys that begin with `prefix`.

    waiting: the marks that could not be written to Redis yet. Methods raise RedisLostError unless
    they say otherwise.
    """

    def __init__(self, link: RedisLink, prefix: str, most_of_owner: int = MOST_OF_OWNER) -> None:
        self._link = link
        self._prefix = f"{prefix}i:"
        self._most_of_owner = most_of_owner
        self.waiting = Remembered()

    async def add(self, marks: Sequence[Mark], at_ms: int) -> None:
        """Redis knows them, and the newest of those it knew."""
        for owner, own in groupby(sorted(marks), lambda mark: mark.owner):
            some = list(own)
            for start in range(0, len(some), _BATCH):
                arguments: list[str | int] = [at_ms, self._most_of_owner]
                for mark in some[start : start + _BATCH]:
                    arguments += (mark.until_ms, mark.id)
                await self._link.run(_ADD, [self._prefix + owner], arguments)

    async def add_waiting(self, at_ms: int) -> None:
        """Write the marks to Redis that could not be written before."""
        while some := self.waiting.oldest(_BATCH):
            await self.add(some, at_ms)
            self.waiting.remove(some)

    async def known(self, owner: str, ids: Sequence[str], at_ms: int) -> frozenset[str]:
        """The subset of the ids that Redis knows."""
        found: set[str] = set()
        for start in range(0, len(ids), _BATCH):
            part = ids[start : start + _BATCH]
            found.update(await self._link.run(_KNOWN, [self._prefix + owner], [at_ms, *part]))
        return frozenset(found)
