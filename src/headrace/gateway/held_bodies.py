"""How many bytes of bodies a process holds: those that come, and those of requests under way.

No limit of a key counts a request before its body is whole, and small ones are bounded by the
connections there are.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.gateway.accounts.caller import Caller
from headrace.protocol.neutral.failure import Failure

LEAST_BYTES = 2**16
"""Smaller bodies do not count: nearly all are, and for them nothing is done here."""

_RETRY_AFTER_S = 1.0


class BodiesFullError(Exception):
    """failure: what the client is told, with a 503."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind="overloaded", message=message, retry_after_s=_RETRY_AFTER_S)


class HeldBodies:
    """What is held now, whatever configuration its requests came under."""

    def __init__(self) -> None:
        self.bytes = 0
        self._of_key: dict[str, int] = {}

    def of_key(self, key_id: str) -> int:
        """Bytes of one key's."""
        return self._of_key.get(key_id, 0)

    def add(self, key_id: str, size: int) -> None:
        """Or take away, where it is below 0."""
        self.bytes += size
        now = self._of_key.get(key_id, 0) + size
        if now:
            self._of_key[key_id] = now
        else:
            self._of_key.pop(key_id, None)


class BodyBound:
    """How much may be held. most_bytes: of all together; a body is taken beyond it where no other
    one is held. has_several_keys: whether more than one key may ask; each then has half of it at
    most, or one body."""

    def __init__(
        self, held: HeldBodies, most_bytes: int, has_several_keys: Callable[[], bool]
    ) -> None:
        self._held = held
        self._most_bytes = most_bytes
        self._has_several_keys = has_several_keys

    def grow(self, caller: Caller | None, before: int, size: int) -> None:
        """A body that had `before` bytes has `size`. Raises BodiesFullError, and then holds what it
        held."""
        if size < LEAST_BYTES:
            return
        held, key_id = self._held, _key_of(caller)
        counted = before if before >= LEAST_BYTES else 0
        of_key = held.of_key(key_id) - counted
        if of_key and of_key + size > self._most_bytes // 2 and self._has_several_keys():
            raise BodiesFullError(
                f"requests of this key have {of_key:,} bytes of large bodies under way, and one "
                f"key has {self._most_bytes // 2:,} at most; try again when some have ended, or "
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
        """Of a body that had so many bytes."""
        if size >= LEAST_BYTES:
            self._held.add(_key_of(caller), -size)


def _key_of(caller: Caller | None) -> str:
    return "" if caller is None else caller.key_id
