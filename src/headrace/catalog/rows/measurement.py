"""Speeds and scores that somebody published: what ran on what, how, and what came out."""

from __future__ import annotations

import msgspec

from headrace.catalog.rows.row import (
    Count,
    Figure,
    RequestsPerSecond,
    Row,
    SecondsSpan,
    Tokens,
    TokensPerSecond,
)


class Measurement(Row, frozen=True, kw_only=True):
    """A published result. Model, hardware, runtime, provider and quantization are ids of rows."""

    model: str | None = None
    hardware: str | None = None
    device_count: Count | None = None
    runtime: str | None = None
    provider: str | None = None
    quantization: str | None = None
    concurrency: Count | None = None
    prompt_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    ttft_s: SecondsSpan | None = None
    tpot_s: SecondsSpan | None = None
    output_tokens_per_s: TokensPerSecond | None = None
    """Of one request after its first token."""
    system_tokens_per_s: TokensPerSecond | None = None
    """Of all requests together."""
    requests_per_s: RequestsPerSecond | None = None
    conditions: str | None = None
    plausible: str | None = None
    """What a roofline or the catalog says of it; absent where nothing speaks against it."""
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
