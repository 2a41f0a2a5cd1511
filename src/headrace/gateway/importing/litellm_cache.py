"""LiteLLM's cache as ours: `litellm_settings.cache` and `cache_params`."""

from __future__ import annotations

from typing import Any

from headrace.errors import ConfigError
from headrace.gateway.importing.litellm_redis import redis_url

NAMES = ("cache", "cache_params")

_WHERE = "litellm_settings.cache_params"
_STORES = {"local": "memory", "redis": "redis", "redis-semantic": "redis", "disk": "sqlite"}
_EMBEDDERS = ("redis_semantic_cache_embedding_model", "qdrant_semantic_cache_embedding_model",
              "valkey_semantic_cache_embedding_model")  # fmt: skip
_KNOWN = {"type", "ttl", "host", "port", "url", "password", "namespace", "mode",
          "similarity_threshold", *_EMBEDDERS}  # fmt: skip
_FILE = "cache.db"


def cache_of(section: dict[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """Our `cache`, None where theirs is off, and notes of what is not the same. section:
    litellm_settings. Raises ConfigError."""
    params = section.get("cache_params") or {}
    if not isinstance(params, dict):
        raise ConfigError(f"{_WHERE}: expected `name: value` lines")
    if section.get("cache") is not True:
        return None, []
    notes = [f"{_WHERE}.{name}: not carried over" for name in params if name not in _KNOWN]
    if params.get("mode") == "default_off":
        notes.append(
            f"{_WHERE}.mode: caching only what a request opts into is not supported here; the "
            "cache was left off"
        )
        return None, notes
    kind = str(params.get("type", "redis"))
    found: dict[str, Any] = {"enabled": True, "all": True, "store": _STORES.get(kind, "memory")}
    if kind not in _STORES:
        notes.append(f"{_WHERE}.type: {kind} is not a store here; answers are kept in memory")
    if found["store"] == "sqlite":
        found["path"] = _FILE
    if found["store"] == "redis":
        _redis(params, found, notes)
    if params.get("ttl") is not None:
        found["ttl_s"] = params["ttl"]
    notes.append(
        "litellm_settings.cache: LiteLLM's is shared by all keys; here each key has its own "
        "answers (cache.scope)"
    )
    embedder = next((params[name] for name in _EMBEDDERS if params.get(name)), None)
    if kind.endswith("-semantic"):
        if embedder is None:
            notes.append(f"{_WHERE}: no embedding model is named; cache.semantic was omitted")
        else:
            found["semantic"] = {"embedding_model": embedder}
            notes.append(
                f"{_WHERE}.similarity_threshold: measure cache.semantic.threshold for your model "
                "(`headrace gateway cache-threshold`)"
            )
    return found, notes


def _redis(params: dict[str, Any], found: dict[str, Any], notes: list[str]) -> None:
    url, host = params.get("url"), params.get("host")
    address = None
    if url is not None or host:
        address = redis_url(url, host, params.get("port"), params.get("password"))
    if address is None:
        notes.append(f"{_WHERE}: put the whole URL of Redis, with its password, into the "
                     "environment and write cache.redis: env:NAME")  # fmt: skip
    found["redis"] = address or "env:CACHE_REDIS_URL"
    if params.get("namespace"):
        found["redis_prefix"] = f"{params['namespace']}:"
