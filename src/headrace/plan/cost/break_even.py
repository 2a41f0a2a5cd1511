"""From which volume own or rented hardware costs less than an API: a curve, not a number.

    hardware  ceil(volume / what one replica can make) · fixed USD/month + volume · marginal
    API       volume · price

Each replica added lifts the hardware's curve by a step, so it can fall below the API's and rise
above it again; both the first volume at which it pays and the one from which it always does count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.plan.validation import above_zero, not_below

_MILLION = 1e6


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Replicas alike that are paid by the month, busy or not."""

    usd_per_month: float
    """Cost of one replica."""
    capacity_tokens_per_month: float
    """Capacity of one replica, at the planned utilisation."""
    marginal_usd_per_million_tokens: float = 0.0
    """What each token costs beyond that, as electricity."""
    least_replicas: int = 1
    """Kept even without work, as 2 so that one may fail."""

    def __post_init__(self) -> None:
        not_below("usd_per_month", self.usd_per_month, 0, "it is what one replica costs")
        above_zero(
            "capacity_tokens_per_month",
            self.capacity_tokens_per_month,
            "tokens/s · 3600 · 730 · utilisation; a machine without capacity never pays",
        )
        not_below(
            "marginal_usd_per_million_tokens",
            self.marginal_usd_per_million_tokens,
            0,
            "0 means none",
        )
        not_below("least_replicas", self.least_replicas, 1, "a fleet has at least one replica")

    def replicas(self, tokens_per_month: float) -> int:
        """How many that volume takes."""
        needed = math.ceil(tokens_per_month / self.capacity_tokens_per_month)
        return max(self.least_replicas, needed)

    def usd(self, tokens_per_month: float) -> float:
        """What a month of that volume costs."""
        marginal = tokens_per_month * self.marginal_usd_per_million_tokens / _MILLION
        return self.replicas(tokens_per_month) * self.usd_per_month + marginal


@dataclass(frozen=True, kw_only=True)
class BreakEvenPoint:
    """One volume, and what a month of it costs either way."""

    tokens_per_month: float
    replicas: int
    fleet_usd_per_month: float
    api_usd_per_month: float
    fleet_usd_per_million_tokens: float


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """The curve. None: at no volume.

    first_tokens_per_month: the least volume at which the fleet costs no more than the API.
    always_tokens_per_month: from it on it never costs more again.
    """

    points: tuple[BreakEvenPoint, ...]
    first_tokens_per_month: float | None
    always_tokens_per_month: float | None


def break_even(
    fleet: Fleet, api_usd_per_million_tokens: float, volumes_tokens_per_month: Iterable[float]
) -> BreakEven:
    """Both costs at each volume above 0, and where they meet. Raises ConfigError.

    A $1,964 month against an API at $3.93 meets at 500 million tokens, at $0.50 at 3.9 billion.
    """
    above_zero(
        "api_usd_per_million_tokens", api_usd_per_million_tokens, "nothing costs less than free"
    )
    points = []
    for volume in volumes_tokens_per_month:
        above_zero("volumes_tokens_per_month", volume, "no token has no price")
        usd = fleet.usd(volume)
        points.append(
            BreakEvenPoint(
                tokens_per_month=volume,
                replicas=fleet.replicas(volume),
                fleet_usd_per_month=usd,
                api_usd_per_month=volume * api_usd_per_million_tokens / _MILLION,
                fleet_usd_per_million_tokens=usd / volume * _MILLION,
            )
        )
    first, always = _meeting(fleet, api_usd_per_million_tokens)
    return BreakEven(
        points=tuple(points), first_tokens_per_month=first, always_tokens_per_month=always
    )


def _meeting(fleet: Fleet, api_usd_per_million_tokens: float) -> tuple[float | None, float | None]:
    saved = api_usd_per_million_tokens - fleet.marginal_usd_per_million_tokens
    if saved <= 0:
        return None, None
    # n replicas pay from n · each on, and can make n · capacity.
    each, capacity = fleet.usd_per_month * _MILLION / saved, fleet.capacity_tokens_per_month
    if each > capacity:
        return None, None
    first = fleet.least_replicas * each
    if each == capacity:
        # Each replica pays only where it is full.
        return first, None
    # The n-th replica is added at (n − 1) · capacity, and loses there as long as n · each is more.
    last_losing = math.ceil(capacity / (capacity - each)) - 1
    return first, max(fleet.least_replicas, last_losing) * each
