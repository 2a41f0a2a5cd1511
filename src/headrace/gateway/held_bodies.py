"""The bytes of request bodies that a process holds, arriving or under way.

No limit of a key counts a request before its body is complete. Small bodies are bounded by the
number of connections.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.gateway.accounts.caller import Caller
from headrace.http.large_bodies import LargeBodies
from headrace.protocol.neutral.failure import Failure

LEAST_BYTES = 2**16
"""Smaller bodies do not count; nearly all are smaller and cost nothing here."""

LARGE_BYTES = 2**20
"""Larger bodies are read and translated one at a time, keys in turn: a body of this size takes some
ten milliseconds, for which smaller ones need not wait."""

_RETRY_AFTER_S = 1.0


class BodiesFullError(Exception):
    """A body for which there is no memory; `failure` is the client's, with a 503."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind="overloaded", message=message, retry_after_s=_RETRY_AFTER_S)


class HeldBodies:
    """The bodies held now, across configurations."""

    def __init__(self) -> None:
        self.bytes = 0
        self.large = LargeBodies(LARGE_BYTES, "headrace-bodies")
        """Does the work on large ones."""
        self._of_key: dict[str, int] = {}

    def of_key(self, key_id: str) -> int:
        """The bytes of one key."""
        return self._of_key.get(key_id, 0)

    def add(self, key_id: str, size: int) -> None:
        """Add bytes, or subtract them if `size` is negative."""
        self.bytes += size
        now = self._of_key.get(key_id, 0) + size
        if now:
            self._of_key[key_id] = now
        else:
            self._of_key.pop(key_id, None)


class BodyBound:
    """The limits on held bodies.

    `most_bytes` limits all together; beyond it a body is accepted if no other is held.
    `has_several_keys` says whether there is more than one key; each may then have half of the
    limit, or one body.
    """

    def __init__(
        self, held: HeldBodies, most_bytes: int, has_several_keys: Callable[[], bool]
    ) -> None:
        self._held = held
        self._most_bytes = most_bytes
        self._has_several_keys = has_several_keys

    def grow(self, caller: Caller | None, before: int, size: int) -> None:
        """Count a body that had `before` bytes as `size`. Raises BodiesFullError, and then leaves
        the count."""
        if size < LEAST_BYTES:
            return
        held, key_id = self._held, key_of(caller)
        counted = before if before >= LEAST_BYTES else 0
        of_key = held.of_key(key_id) - counted
        if of_key and of_key + size > self._most_bytes // 2 and self._has_several_keys():
            raise BodiesFullError(
                f"requests of this key have {of_key:,} bytes of large bodies under way; the limit "
                f"of one key is {self._most_bytes // 2:,}; try again when some have ended, or "
                "raise listen.max_bodies_bytes, of which it is half"
            )
        others = held.bytes - counted
        if others and others + size > self._most_bytes:
            raise BodiesFullError(
                f"this gateway holds {others:,} bytes of large bodies, and {self._most_bytes:,} is "
                "the limit; try again, or raise listen.max_bodies_bytes"
            )
        held.add(key_id, size - counted)

    def let_go(self, caller: Caller | None, size: int) -> None:
        """Release `size` bytes held for a body."""
        if size >= LEAST_BYTES:
            self._held.add(key_of(caller), -size)


def key_of(caller: Caller | None) -> str:
    """The key that a body counts for; "" without one."""
    return "" if caller is None else caller.key_id
