"""Memory for replies that are under way, shared by all connections of a client.

A reply takes it in grants that grow as it does, and gives all back at its end: a server that never
stops sending, on many connections at once, fills this and not the machine.
"""

from __future__ import annotations

# So small that as many replies as a process has connections fit into a gibibyte.
FIRST_GRANT_BYTES = 16 * 2**10
# So large that asking for one is rare, so small that little is taken for nothing.
MAX_GRANT_BYTES = 2**20
# Of a piece beside its bytes: the object's head, the time, and places in two lists.
PIECE_BYTES = 96


class MemoryBudget:
    """`size_bytes` to be taken and given back."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._left_bytes = size_bytes

    def take(self, held_bytes: int, most_bytes: int) -> int:
        """A grant for a reply that has `held_bytes` and may have `most_bytes`.

        As much as it has already, within the limits above; 0 where nothing is left for it.
        """
        wanted = min(max(held_bytes, FIRST_GRANT_BYTES), MAX_GRANT_BYTES)
        granted = max(0, min(wanted, most_bytes - held_bytes, self._left_bytes))
        self._left_bytes -= granted
        return granted

    def give(self, granted_bytes: int) -> None:
        """Give back what was taken."""
        self._left_bytes += granted_bytes
