"""Companies that sell tokens, GPU hours or access to both, and gateways one runs oneself."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.catalog.rows.row import Count, Factor, Figure, Row, Share, UsdPerMillionTokensSpan

Category = Literal["model-api", "router", "gpu-rental", "serverless-gpu", "gateway", "hub", "edge"]
Tier = Literal["frontier", "value", "infrastructure", "speed", "enterprise"]


class Provider(Row, frozen=True, kw_only=True):
    """Who sells or routes, and on which terms.

    batch_discount_share: off the list price for work that may wait. cache_read_share and
    cache_write_factor: of the input price, where no price row says it for the model.
    """

    category: Category | None = None
    tier: Tier | None = None
    base_url: str | None = None
    api: str | None = None
    self_hosted: bool | None = None
    models: tuple[str, ...] = ()
    regions: Count | None = None
    compliance: tuple[str, ...] = ()
    availability_share: Share | None = None
    billing: str | None = None
    free_tier: str | None = None
    input_price_range: UsdPerMillionTokensSpan | None = None
    batch_discount_share: Share | None = None
    cache_read_share: Share | None = None
    cache_write_factor: Factor | None = None
    hardware: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    best_for: str | None = None
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
