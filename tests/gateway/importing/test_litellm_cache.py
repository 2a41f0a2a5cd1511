"""LiteLLM's cache becomes ours, and what does not is told."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.importing.litellm import import_litellm
from headrace.gateway.settings.cache import CacheSettings
from headrace.gateway.settings.read import parse_settings

MODELS = [
    {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_key": "os.environ/K"}}
    for name in ("gpt-5-mini", "text-embedding-3-small")
]


def imported(**section: Any) -> tuple[CacheSettings, str]:
    found = import_litellm({"model_list": MODELS, "litellm_settings": section})
    return parse_settings(Document(found.settings, {}), "f").cache, "\n".join(found.notes)


def test_off_stays_off() -> None:
    assert not imported()[0].enabled
    assert not imported(cache=False, cache_params={"type": "redis"})[0].enabled
    cache, told = imported(cache=True, cache_params={"type": "local", "mode": "default_off"})
    assert not cache.enabled and "mode" in told


def test_redis_with_what_it_has() -> None:
    params = {"type": "redis", "host": "cache", "port": 6380, "ttl": 600, "namespace": "eu",
              "supported_call_types": ["acompletion"]}  # fmt: skip
    cache, told = imported(cache=True, cache_params=params)
    assert cache.enabled and cache.all and cache.store == "redis"
    assert (cache.redis, cache.redis_prefix, cache.ttl_s) == ("redis://cache:6380/0", "eu:", 600)
    assert "supported_call_types: not carried over" in told and "cache.scope" in told


def test_a_password_stays_in_the_environment() -> None:
    params = {"type": "redis", "host": "cache", "password": "hunter2"}
    cache, told = imported(cache=True, cache_params=params)
    assert cache.redis == "env:CACHE_REDIS_URL" and "cache.redis" in told
    assert "hunter2" not in told
    assert imported(cache=True)[0].redis == "env:CACHE_REDIS_URL"
    cache, told = imported(cache=True, cache_params={"type": "redis", "host": "os.environ/HOST"})
    assert cache.redis == "env:CACHE_REDIS_URL" and "cache.redis: env:NAME" in told


def test_semantic_needs_a_measured_threshold() -> None:
    params = {"type": "redis-semantic", "host": "cache", "similarity_threshold": 0.8,
              "redis_semantic_cache_embedding_model": "text-embedding-3-small"}  # fmt: skip
    cache, told = imported(cache=True, cache_params=params)
    assert cache.semantic is not None
    assert (cache.semantic.embedding_model, cache.semantic.threshold) == (
        "text-embedding-3-small", 0.97,
    )  # fmt: skip
    assert "cache-threshold" in told
    cache, told = imported(cache=True, cache_params={"type": "qdrant-semantic"})
    assert cache.semantic is None and "no embedding model" in told


def test_other_stores() -> None:
    assert imported(cache=True, cache_params={"type": "disk"})[0].path == "cache.db"
    cache, told = imported(cache=True, cache_params={"type": "s3", "s3_bucket_name": "b"})
    assert cache.store == "memory" and "s3 is not a store" in told and "s3_bucket_name" in told
    with pytest.raises(ConfigError, match="cache_params"):
        imported(cache=True, cache_params=[1])
