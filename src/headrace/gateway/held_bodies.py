"""How many bytes of bodies a process holds: those that come, and those of requests under way.

No limit of a key counts a request before its body is whole, and small ones are bounded by the
connections there are.
"""

from __future__ import annotations

from headrace.protocol.neutral.failure import Failure

LEAST_BYTES = 2**16
"""Smaller bodies do not count: nearly all are, and for them nothing is done here."""

_RETRY_AFTER_S = 1.0


class BodiesFullError(Exception):
    """failure: what the client is told, with a 503."""

    def __init__(self, most_bytes: int) -> None:
        message = (
            f"this gateway holds {most_bytes:,} bytes of large bodies, which is the limit; try "
            "again, or raise listen.max_bodies_bytes"
        )
        super().__init__(message)
        self.failure = Failure(kind="overloaded", message=message, retry_after_s=_RETRY_AFTER_S)


class HeldBodies:
    """most_bytes: of all together; a body is taken beyond it where no other one is held."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.bytes = 0

    def grow(self, before: int, size: int) -> None:
        """A body that had `before` bytes has `size`. Raises BodiesFullError, and then holds what it
        held."""
        if size < LEAST_BYTES:
            return
        others = self.bytes - (before if before >= LEAST_BYTES else 0)
        if others and others + size > self._most_bytes:
            raise BodiesFullError(self._most_bytes)
        self.bytes = others + size

    def let_go(self, size: int) -> None:
        """Of a body that had so many bytes."""
        if size >= LEAST_BYTES:
            self.bytes -= size
