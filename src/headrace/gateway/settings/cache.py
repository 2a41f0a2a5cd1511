"""Answers that are given again."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.errors import ConfigError
from headrace.gateway.settings.provider import SecretText, Text

CacheScope = Literal["key", "team", "organisation", "all"]


class PromptCacheSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt caches of providers and engines, which hold beginnings of prompts."""

    scope: Annotated[
        CacheScope,
        Meta(
            description="Who shares cached beginnings of prompts: requests of one key, team or "
            "organisation, or all (anyone who guesses the beginning of another's prompt then "
            "learns from `cached_tokens`, or from the speed, that it was sent before)."
        ),
    ] = "key"


class SemanticSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The semantic cache: a question with the same meaning gets the answer of the earlier one."""

    embedding_model: Annotated[
        Text,
        Meta(
            description="The model that embeds questions: a model of this file, or "
            "`provider/model`. "
            "Each embedding request is charged to the client's own key and has its own line "
            "in the ledger."
        ),
    ]
    threshold: Annotated[
        float,
        Meta(
            ge=0.5,
            le=1,
            description="Cosine similarity from which two questions count as the same. The right "
            "value "
            "depends on the embedding model: measure it (`headrace gateway "
            "cache-threshold`).",
        ),
    ] = 0.97
    ttl_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(
            description="How old an answer found by meaning may be; at most ttl_s, which is also "
            "the "
            "default."
        ),
    ] = None
    max_entries: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Questions kept per tenant; the least recently useful are evicted first.",
        ),
    ] = 1000
    min_chars: Annotated[
        int, Meta(ge=1, description="Shorter questions are not looked up: they are too ambiguous.")
    ] = 16
    max_chars: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Longer questions are not looked up: embedding models read only a few "
            "hundred "
            "words.",
        ),
    ] = 1000
    timeout_s: Annotated[
        float,
        Meta(gt=0, le=10, description="How long a request waits for its embedding, in seconds."),
    ] = 0.2
    max_bytes: Annotated[
        int,
        Meta(
            ge=2**16,
            description="Memory that the vectors of all tenants may take, as cache.max_bytes.",
        ),
        formerly("most_bytes"),
    ] = 64 * 2**20

    def __post_init__(self) -> None:
        if self.min_chars > self.max_chars:
            raise ConfigError(
                f"min_chars: {self.min_chars} is more than max_chars, {self.max_chars}; no "
                "question would be looked up"
            )


class CacheSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The exact cache: an identical request gets the earlier answer."""

    enabled: Annotated[bool, Meta(description="Whether answers are cached at all.")] = False
    models: Annotated[
        tuple[Text, ...],
        Meta(
            description="Models whose answers are cached: names and globs, matched against the "
            "requested "
            "name."
        ),
    ] = ("*",)
    all: Annotated[
        bool,
        Meta(
            description="Whether the answers of all requests are cached, as LiteLLM and Helicone "
            "do; "
            "otherwise only of those with temperature 0 or a seed."
        ),
    ] = False
    scope: Annotated[
        CacheScope,
        Meta(
            description="Who shares cached answers: requests of one key, team or organisation, or "
            "everybody (anyone who sends the same request then learns that it was sent "
            "before)."
        ),
    ] = "key"
    ttl_s: Annotated[
        float, Meta(gt=0, le=366 * 86_400, description="How old an answer may be, in seconds.")
    ] = 3600.0
    store: Annotated[
        Literal["memory", "sqlite", "redis"],
        Meta(
            description="Where answers are kept: in each process, in a file, or in Redis or Valkey."
        ),
    ] = "memory"
    path: Annotated[
        Text | None,
        Meta(description="The file of `store: sqlite`, relative to the folder of gateway.yaml."),
    ] = None
    redis: Annotated[
        SecretText | None,
        Meta(
            description="The server of `store: redis`, as redis://host:6379/0 or env:NAME (`pip "
            "install "
            "'headrace[redis]'`). Default: that of access.redis; a server of its own is "
            "better."
        ),
    ] = None
    redis_prefix: Annotated[
        Text,
        Meta(
            max_length=200,
            description="Prefix of the names of keys in Redis. Gateways with the same prefix share "
            "answers, and must have the same keys, teams and models.",
        ),
    ] = "headrace:cache:"
    redis_timeout_s: Annotated[
        float,
        Meta(
            gt=0, le=10, description="How long a request waits for Redis, after which it is a miss."
        ),
    ] = 0.05
    max_bytes: Annotated[
        int,
        Meta(
            ge=2**16,
            description="Size limit of the cache. In memory the least recently used answers are "
            "evicted "
            "first, in a file the oldest; in Redis its own `maxmemory` applies instead.",
        ),
        formerly("most_bytes"),
    ] = 256 * 2**20
    max_answer_bytes: Annotated[
        int,
        Meta(ge=1024, le=8 * 2**20, description="The largest answer that is cached."),
        formerly("most_answer_bytes"),
    ] = 8 * 2**20
    coalesce: Annotated[
        bool,
        Meta(
            description="Whether identical requests that arrive while the first is being answered "
            "wait "
            "for its answer instead of going to a provider too."
        ),
    ] = False
    coalesce_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="How long such requests wait before they go to a provider themselves.",
        ),
    ] = 60.0
    semantic: Annotated[
        SemanticSettings | None,
        Meta(description="Cached answers for questions with the same meaning; off if omitted."),
    ] = None

    def __post_init__(self) -> None:
        if self.store == "sqlite" and self.path is None:
            raise ConfigError("path: `store: sqlite` needs a file; name one (path: cache.db)")
        if self.store != "sqlite" and self.path is not None:
            raise ConfigError("path: only `store: sqlite` has a file; remove one of the two")
        if self.store != "redis" and self.redis is not None:
            raise ConfigError("redis: only `store: redis` has a server; remove one of the two")

    def __repr__(self) -> str:
        return f"<settings of the cache, store {self.store}>"
