"""Memory for replies under way: who gets how much of it."""

from __future__ import annotations

from itertools import pairwise

from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.memory_budget import FIRST_GRANT_BYTES, MAX_GRANT_BYTES, MemoryBudget


def test_grants_grow_with_the_reply_to_its_limit() -> None:
    room = MemoryBudget(2**30)
    held, grants = 0, []
    while granted := room.take(held, 5 * 2**20 + 7):
        held += granted
        grants.append(granted)
    assert held == 5 * 2**20 + 7
    assert grants[0] == FIRST_GRANT_BYTES
    assert max(grants) == MAX_GRANT_BYTES
    assert all(b <= 2 * a for a, b in pairwise(grants))


def test_what_is_given_back_is_there_for_others() -> None:
    room = MemoryBudget(FIRST_GRANT_BYTES + 5)
    assert room.take(0, 2**30) == FIRST_GRANT_BYTES
    assert room.take(0, 2**30) == 5
    assert room.take(0, 2**30) == 0
    room.give(FIRST_GRANT_BYTES)
    assert room.take(0, 9) == 9


def test_as_many_replies_fit_as_a_process_has_connections() -> None:
    room = MemoryBudget(ClientLimits().max_held_bytes)
    assert all(room.take(0, 2**28) == FIRST_GRANT_BYTES for _ in range(60_000))
