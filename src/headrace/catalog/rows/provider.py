"""Companies that sell tokens, GPU hours or access to both, and gateways one runs oneself."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.catalog.rows.row import Count, Factor, Figure, Row, Share, UsdPerMillionTokensSpan

Category = Literal[
    "model-api", "router", "gpu-rental", "serverless-gpu", "gateway", "hub", "edge", "server"
]
Dialect = Literal[
    "openai-chat", "anthropic", "gemini", "bedrock", "cohere", "mistral", "ollama", "replicate"
]
Auth = Literal[
    "bearer",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-portkey-api-key",
    "token",
    "aws",
    "google",
    "none",
]
Tier = Literal["frontier", "value", "infrastructure", "speed", "enterprise"]


class Provider(Row, frozen=True, kw_only=True):
    """A seller of tokens or GPU hours, or a gateway, and its terms."""

    category: Category | None = None
    tier: Tier | None = None
    base_url: str | None = None
    """Where its API begins; names in braces are for people to fill in."""
    api: str | None = None
    dialect: Dialect | None = None
    """What its chat API speaks."""
    variant: str | None = None
    """Which of the OpenAI-compatible kinds, where it is one."""
    completions: bool | None = None
    """Whether it has OpenAI's older completions beside chat."""
    responses: bool | None = None
    """Whether it has OpenAI's Responses API beside chat."""
    key_variable: str | None = None
    """Of the environment, as its own tools read the key."""
    auth: Auth | None = None
    """How the key is sent; "aws" is a signature or a bearer key, "google" an access token of Google
    Cloud.
    """
    self_hosted: bool | None = None
    models: tuple[str, ...] = ()
    regions: Count | None = None
    compliance: tuple[str, ...] = ()
    availability_share: Share | None = None
    billing: str | None = None
    free_tier: str | None = None
    input_price_range: UsdPerMillionTokensSpan | None = None
    batch_discount_share: Share | None = None
    """Off the list price for work that may wait."""
    cache_read_share: Share | None = None
    """Of the input price, where no price row states it for the model."""
    cache_write_factor: Factor | None = None
    """Of the input price, where no price row states it for the model."""
    hardware: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    best_for: str | None = None
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
