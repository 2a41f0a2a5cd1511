"""A model that clients ask for, with its targets, as the router uses it."""

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
    """stands_for: of a model made of other models, those; `targets` are then all that these have.
    total_s: for a request with all its attempts."""

    name: str
    targets: tuple[Target, ...]
    retries: RetrySettings
    total_s: float
    strategy: Strategy = "weighted"
    sticky: Literal["none", "session", "prefix"] = "none"
    fallbacks: tuple[str, ...] = ()
    context_fallbacks: tuple[str, ...] = ()
    policy_fallbacks: tuple[str, ...] = ()
    stands_for: tuple[str, ...] = ()
    hedging: Hedging | None = None
    variants: Variants | None = None
    shadow: Shadow | None = None
    engine_order: EngineOrder | None = None
