"""Where answers are kept: bytes by key, for a while and within a bound."""

from __future__ import annotations

from typing import Protocol


class CacheStore(Protocol):
    """Nothing in it is ever missed: what fails, or is damaged, is not there. now_s, expires_s: Unix
    time."""

    async def get(self, key: bytes, now_s: float) -> bytes | None:
        """What was put last under the key, unless it has expired or had to go."""

    def put(self, key: bytes, value: bytes, *, now_s: float, expires_s: float) -> None:
        """Keep it from now on or a moment later; does not wait."""

    def close(self) -> None:
        """Let go of files and threads; afterwards nothing is there."""
