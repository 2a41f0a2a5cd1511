"""Requests that have left for a provider: from then on their prompts may be billed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.gateway.routing.decision import Candidate
from headrace.gateway.serving.bill import cost_nusd
from headrace.protocol.neutral.usage import TokenUsage


class Sent:
    """at_ns: when a request's bytes left for a provider, None before. service_tier: what it asks
    for, None if nothing. told, told_tier: what a reply that could not be used says it took, and at
    which tier. is_open: whether it takes more than its prompt, and nobody tells how much."""

    __slots__ = ("_clock_ns", "at_ns", "is_open", "service_tier", "told", "told_tier")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.at_ns: int | None = None
        self.service_tier: str | None = None
        self.told: TokenUsage | None = None
        self.told_tier: str | None = None
        self.is_open = False

    def mark(self) -> None:
        """They leave now."""
        self.at_ns = self._clock_ns()


class Unanswered(NamedTuple):
    """A request that was sent, and to which no reply has come, or none that could be used.
    service_tier, told, told_tier, is_open: as of Sent."""

    candidate: Candidate
    sent_ns: int
    input_tokens: int
    service_tier: str | None
    told: TokenUsage | None = None
    told_tier: str | None = None
    is_open: bool = False

    @property
    def usage(self) -> TokenUsage:
        """Where it is not told, estimated: of the prompt alone, for nobody knows what was written
        after it."""
        return self.told or TokenUsage(input_tokens=self.input_tokens)

    @property
    def cost_nusd(self) -> int | None:
        """At the service tier it was told or asked for; None where nobody knows the price, or
        what it took."""
        if self.is_open and self.told is None:
            return None
        price = self.candidate.target.price
        return cost_nusd(self.usage, price, self.told_tier, asked_tier=self.service_tier)


def unanswered_of(candidate: Candidate, sent: Sent, input_tokens: int) -> Unanswered | None:
    """None where nothing was sent."""
    if sent.at_ns is None:
        return None
    return Unanswered(
        candidate,
        sent.at_ns,
        input_tokens,
        sent.service_tier,
        sent.told,
        sent.told_tier,
        sent.is_open,
    )
