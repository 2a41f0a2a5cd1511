"""A model that clients can request, with its targets, as the router uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.gateway.routing.hedging import Hedging
from headrace.gateway.routing.shadow import Shadow
from headrace.gateway.routing.variants import Variants
from headrace.gateway.settings.model import Strategy
from headrace.gateway.settings.reliability import RetrySettings
from headrace.gateway.targets.target import Target

if TYPE_CHECKING:
    from headrace.gateway.engines.order import EngineOrder


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """A configured model."""

    name: str
    targets: tuple[Target, ...]
    """Its targets; for a composed model, those of all its models."""
    retries: RetrySettings
    total_s: float
    """Time limit of a request with all its attempts."""
    strategy: Strategy = "weighted"
    sticky: Literal["none", "session", "prefix"] = "none"
    fallbacks: tuple[str, ...] = ()
    context_fallbacks: tuple[str, ...] = ()
    policy_fallbacks: tuple[str, ...] = ()
    stands_for: tuple[str, ...] = ()
    """The models that a composed model consists of."""
    hedging: Hedging | None = None
    variants: Variants | None = None
    shadow: Shadow | None = None
    engine_order: EngineOrder | None = None
