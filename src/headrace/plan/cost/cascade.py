"""A cascade: a small model answers, and what it is not sure of goes to a larger one.

    expected cost    = c1 + p1·c2 + p1·p2·c3 + …        expected latency the same of latencies

p: the share of requests that a stage passes on. Each that is passed on has paid and waited for the
stages before, so a cascade costs less than its last stage alone only while p is small enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import ConfigError
from headrace.plan.validation import above_zero, not_below, share


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One model of a cascade. escalated_share: of what it sees, passed on; the last one's is 0."""

    name: str
    usd_per_request: float
    latency_s: float
    escalated_share: float = 0.0

    def __post_init__(self) -> None:
        not_below("usd_per_request", self.usd_per_request, 0, "0 means free of charge")
        not_below("latency_s", self.latency_s, 0, "it is the E2E of one request")
        share("escalated_share", self.escalated_share, "it is a share of the requests")


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """The mean cost and latency of a request of a cascade, and the worst latency."""

    usd_per_request: float
    latency_s: float
    worst_latency_s: float
    reached_shares: tuple[float, ...]
    """Share of all requests that reaches each stage."""


def cascade(stages: Sequence[Stage]) -> Cascade:
    """Of stages in the order they are asked. Raises ConfigError."""
    if not stages:
        raise ConfigError("stages is empty; a cascade needs at least one model: name one")
    if stages[-1].escalated_share:
        raise ConfigError(
            f"escalated_share of {stages[-1].name} is {stages[-1].escalated_share:g}; the "
            "last stage has no stage to pass requests on to: set it to 0, or add a stage"
        )
    reached, shares = 1.0, []
    for stage in stages:
        shares.append(reached)
        reached *= stage.escalated_share
    pairs = list(zip(shares, stages, strict=True))
    return Cascade(
        usd_per_request=sum(seen * stage.usd_per_request for seen, stage in pairs),
        latency_s=sum(seen * stage.latency_s for seen, stage in pairs),
        worst_latency_s=sum(stage.latency_s for seen, stage in pairs if seen),
        reached_shares=tuple(shares),
    )


def most_escalated_share(small_usd_per_request: float, large_usd_per_request: float) -> float:
    """The share passed on up to which two stages cost no more than the large model alone.

    1 − small / large; 0 where the small one costs as much or more.
    """
    not_below("small_usd_per_request", small_usd_per_request, 0, "0 means free of charge")
    above_zero("large_usd_per_request", large_usd_per_request, "nothing costs less than free")
    return max(0.0, 1 - small_usd_per_request / large_usd_per_request)
