"""Answers that are given again."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.errors import ConfigError
from headrace.gateway.settings.provider import SecretText, Text

CacheScope = Literal["key", "team", "organisation", "all"]


class SemanticSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The semantic cache: a question that means the same gets the answer of the other one."""

    embedding_model: Annotated[
        Text,
        Meta(
            description="What makes vectors of questions: a model of this file, or "
            "`provider/model`. Each is asked for on the client's own key and has a line of the "
            "ledger."
        ),
    ]
    threshold: Annotated[
        float,
        Meta(
            ge=0.5,
            le=1,
            description="Cosine similarity from which questions count as the same. It belongs to "
            "the embedding model: measure it (`headrace gateway cache-threshold`).",
        ),
    ] = 0.97
    ttl_s: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="How old such an answer may be; at most, and by default, ttl_s."),
    ] = None
    max_entries: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Questions kept per tenant; those go that helped longest ago.",
        ),
    ] = 1000
    min_chars: Annotated[
        int, Meta(ge=1, description="Shorter questions are not looked up: they say too little.")
    ] = 16
    max_chars: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Longer questions are not looked up: embedding models read some hundred "
            "words and no further.",
        ),
    ] = 1000
    timeout_s: Annotated[
        float,
        Meta(gt=0, le=10, description="How long a request waits for its vector, in seconds."),
    ] = 0.2
    max_bytes: Annotated[
        int,
        Meta(ge=2**16, description="What vectors of all tenants may take, as cache.max_bytes."),
        formerly("most_bytes"),
    ] = 64 * 2**20

    def __post_init__(self) -> None:
        if self.min_chars > self.max_chars:
            raise ConfigError(
                f"min_chars: {self.min_chars} is more than max_chars, {self.max_chars}; no "
                "question would be looked up"
            )


class CacheSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The exact cache: the same request of the same caller gets the answer it had before."""

    enabled: Annotated[bool, Meta(description="Whether answers are kept at all.")] = False
    models: Annotated[
        tuple[Text, ...],
        Meta(description="Models whose answers are kept, by names and globs of what is asked for."),
    ] = ("*",)
    all: Annotated[
        bool,
        Meta(
            description="Whether answers are kept of every request, as LiteLLM and Helicone do; "
            "otherwise of those with temperature 0 or a seed."
        ),
    ] = False
    scope: Annotated[
        CacheScope,
        Meta(
            description="Who shares answers: those of one key, team or organisation, or everybody "
            "(whoever asks the same then learns that it was asked before)."
        ),
    ] = "key"
    ttl_s: Annotated[
        float, Meta(gt=0, le=366 * 86_400, description="How old an answer may be, in seconds.")
    ] = 3600.0
    store: Annotated[
        Literal["memory", "sqlite", "redis"],
        Meta(description="Where they are: in each process, in a file, or in Redis or Valkey."),
    ] = "memory"
    path: Annotated[
        Text | None,
        Meta(description="The file of `store: sqlite`, from the folder of gateway.yaml on."),
    ] = None
    redis: Annotated[
        SecretText | None,
        Meta(
            description="The server of `store: redis`, as redis://host:6379/0 or env:NAME "
            "(`pip install 'headrace[redis]'`). Default: that of access.redis, which better has "
            "its memory to itself."
        ),
    ] = None
    redis_prefix: Annotated[
        Text,
        Meta(
            max_length=200,
            description="What names of keys in Redis begin with. Gateways with the same prefix "
            "share answers, and must have the same keys, teams and models.",
        ),
    ] = "headrace:cache:"
    redis_timeout_s: Annotated[
        float,
        Meta(gt=0, le=10, description="How long a request waits for Redis; then it is a miss."),
    ] = 0.05
    max_bytes: Annotated[
        int,
        Meta(
            ge=2**16,
            description="What they may take. In memory those go that were asked for longest ago, "
            "in a file those that were kept first; in Redis its `maxmemory` holds, not this.",
        ),
        formerly("most_bytes"),
    ] = 256 * 2**20
    most_answer_bytes: Annotated[
        int,
        Meta(ge=1024, le=8 * 2**20, description="The largest answer that is kept."),
    ] = 8 * 2**20
    coalesce: Annotated[
        bool,
        Meta(
            description="Whether identical requests that come while the first is being answered "
            "wait for its answer instead of asking a provider too."
        ),
    ] = False
    coalesce_timeout_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="How long they wait at most; then they ask themselves."),
    ] = 60.0
    semantic: Annotated[
        SemanticSettings | None,
        Meta(description="Answers to questions that mean the same; off without it."),
    ] = None

    def __post_init__(self) -> None:
        if self.store == "sqlite" and self.path is None:
            raise ConfigError("path: `store: sqlite` needs a file; name one (path: cache.db)")
        if self.store != "sqlite" and self.path is not None:
            raise ConfigError("path: only `store: sqlite` has a file; take one of the two out")
        if self.store != "redis" and self.redis is not None:
            raise ConfigError("redis: only `store: redis` has a server; take one of the two out")

    def __repr__(self) -> str:
        return f"<settings of the cache, store {self.store}>"
