"""The cache of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.errors import ConfigError
from headrace.gateway.cache.cache import ResponseCache
from headrace.gateway.cache.memory_store import MemoryStore
from headrace.gateway.cache.store import CacheStore
from headrace.gateway.settings.cache import CacheSettings


def cache_of(
    settings: CacheSettings, folder: Path, wall_s: Callable[[], float]
) -> ResponseCache | None:
    """None where nothing is kept. folder: what a relative path begins at. Raises ConfigError."""
    if not settings.enabled:
        return None
    store: CacheStore
    if settings.path is None:
        store = MemoryStore(settings.most_bytes)
    else:
        from headrace.gateway.cache.sqlite_store import SqliteStore

        path = folder / settings.path
        if not path.parent.is_dir():
            raise ConfigError(f"cache.path: there is no folder {path.parent}; make it first")
        store = SqliteStore(path, settings.most_bytes)
    return ResponseCache(settings, store, wall_s=wall_s)
