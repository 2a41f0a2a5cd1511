"""Stores of answers: bytes by key, for a limited time and of limited size."""

from __future__ import annotations

from typing import Protocol


class CacheStore(Protocol):
    """A store of answers. Entries may vanish at any time; a failed or damaged one is a miss. now_s,
    expires_s: Unix time."""

    async def get(self, key: bytes, now_s: float) -> bytes | None:
        """The latest value of the key, unless it has expired or was dropped."""

    def put(self, key: bytes, value: bytes, *, now_s: float, expires_s: float) -> None:
        """Store a value, at once or a moment later; does not wait."""

    def close(self) -> None:
        """Close files and threads; afterwards nothing is found."""
