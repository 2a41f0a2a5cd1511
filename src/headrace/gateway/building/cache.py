"""The cache of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.errors import ConfigError
from headrace.gateway.cache.cache import ResponseCache
from headrace.gateway.cache.memory_store import MemoryStore
from headrace.gateway.cache.semantic.cache import SemanticCache
from headrace.gateway.cache.semantic.vectors import VectorStore
from headrace.gateway.cache.store import CacheStore
from headrace.gateway.serving.serving import Serving
from headrace.gateway.settings.cache import CacheSettings, SemanticSettings
from headrace.gateway.settings.secret import Sources, read_secret

_VECTORS_SUFFIX = ".vectors"


def cache_of(
    settings: CacheSettings,
    sources: Sources,
    wall_s: Callable[[], float],
    clock_s: Callable[[], float],
    *,
    redis: str | None,
    serving: Callable[[], Serving],
) -> ResponseCache | None:
    """The cache of the file; None if it is off.

    redis: the server in which limits are counted. serving: the gateway's, available by the time a
    question is embedded. Raises ConfigError; connects to nothing.
    """
    if not settings.enabled:
        return None
    path = None if settings.path is None else sources.folder / settings.path
    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"cache.path: the folder {path.parent} does not exist; make it first")
    semantic = None
    if settings.semantic is not None:
        semantic = _semantic(settings.semantic, path, clock_s, serving)
    store = _store(settings, path, sources, clock_s, redis)
    return ResponseCache(settings, store, wall_s=wall_s, semantic=semantic)


def _store(
    settings: CacheSettings,
    path: Path | None,
    sources: Sources,
    clock_s: Callable[[], float],
    redis: str | None,
) -> CacheStore:
    if path is not None:
        from headrace.gateway.cache.sqlite_store import SqliteStore

        return SqliteStore(path, settings.max_bytes)
    if settings.store != "redis":
        return MemoryStore(settings.max_bytes)
    from headrace.gateway.cache.redis_store import RedisStore, client_of

    server, named = settings.redis or redis, "cache.redis" if settings.redis else "access.redis"
    if server is None:
        raise ConfigError(
            "cache.redis: `store: redis` needs a server; name one (redis://localhost:6379/0 or "
            "env:NAME), here or as access.redis"
        )
    return RedisStore(
        client_of(read_secret(server, sources, named).reveal()),
        settings.redis_prefix,
        most_value_bytes=settings.max_answer_bytes,
        clock_s=clock_s,
        most_wait_s=settings.redis_timeout_s,
    )


def _semantic(
    settings: SemanticSettings,
    path: Path | None,
    clock_s: Callable[[], float],
    serving: Callable[[], Serving],
) -> SemanticCache:
    # NumPy takes a good part of a gateway's start: only who turns this on pays for it.
    from headrace.gateway.serving.embed_question import QuestionEmbedder

    vectors: VectorStore
    if path is None:
        from headrace.gateway.cache.semantic.memory_vectors import MemoryVectors

        vectors = MemoryVectors(settings.max_entries, settings.max_bytes)
    else:
        from headrace.gateway.cache.semantic.sqlite_vectors import SqliteVectors

        beside = path.with_name(path.name + _VECTORS_SUFFIX)
        vectors = SqliteVectors(beside, settings.max_entries, settings.max_bytes)
    embedder = QuestionEmbedder(serving, settings.embedding_model)
    return SemanticCache(settings, vectors, embedder, clock_s=clock_s)
