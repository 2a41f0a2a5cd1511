"""Answers in memory, for one process."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

# A key, an entry and their table slots; measured on CPython 3.12.
_BESIDE_BYTES = 320


class _Entry(NamedTuple):
    value: bytes
    expires_s: float


class MemoryStore:
    """A CacheStore in memory. Beyond most_bytes the least recently used entries are dropped."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: bytes, now_s: float) -> bytes | None:
        """See CacheStore."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now_s >= entry.expires_s:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: bytes, value: bytes, *, now_s: float, expires_s: float) -> None:
        """See CacheStore."""
        if key in self._entries:
            self._drop(key)
        size = len(value) + _BESIDE_BYTES
        if size > self._most_bytes or now_s >= expires_s:
            return
        while self.size_bytes + size > self._most_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[key] = _Entry(value, expires_s)
        self.size_bytes += size

    def close(self) -> None:
        """See CacheStore."""
        self._entries.clear()
        self.size_bytes = 0

    def _drop(self, key: bytes) -> None:
        self.size_bytes -= len(self._entries.pop(key).value) + _BESIDE_BYTES
