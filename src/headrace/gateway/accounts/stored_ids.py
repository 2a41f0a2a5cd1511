"""Which key was told which id of what a provider stores: nobody else may use it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from headrace.gateway.accounts.counters import Counters

# As long as OpenAI stores a response.
_KEPT_MS = 30 * 86_400_000


class StoredIds:
    """Remembered where limits are counted, as hashes. wall_s: Unix time."""

    def __init__(self, counters: Counters, wall_s: Callable[[], float]) -> None:
        self._counters = counters
        self._wall_s = wall_s

    async def tell(self, key_id: str, stored_id: str) -> None:
        """The key is told the id."""
        at_ms = self._now_ms()
        await self._counters.remember(
            _mark(key_id, stored_id), until_ms=at_ms + _KEPT_MS, at_ms=at_ms
        )

    async def was_told(self, key_id: str, stored_id: str) -> bool:
        """Whether the key was told the id."""
        return await self._counters.remembers(_mark(key_id, stored_id), at_ms=self._now_ms())

    def _now_ms(self) -> int:
        return int(self._wall_s() * 1000)


def _mark(key_id: str, stored_id: str) -> str:
    whole = f"{len(key_id)}|{key_id}|{stored_id}".encode(errors="surrogatepass")
    return hashlib.blake2b(whole, digest_size=16).hexdigest()
