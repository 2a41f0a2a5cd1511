"""Requests that were sent to a provider: from then on their prompts may be billed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.gateway.routing.decision import Candidate
from headrace.gateway.serving.bill import cost_nusd
from headrace.protocol.neutral.usage import TokenUsage


class Sent:
    """The state of a request at a provider while it has no usable reply.

    `at_ns` is when its bytes were sent, None before. `service_tier` is the requested tier, None if
    there is none. `told` and `told_tier` are the usage and the tier that an unusable reply
    reported. `is_open` says that it uses more than its prompt, by an unknown amount.
    """

    __slots__ = ("_clock_ns", "at_ns", "is_open", "service_tier", "told", "told_tier")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.at_ns: int | None = None
        self.service_tier: str | None = None
        self.told: TokenUsage | None = None
        self.told_tier: str | None = None
        self.is_open = False

    def mark(self) -> None:
        """Record that the request is being sent."""
        self.at_ns = self._clock_ns()


class Unanswered(NamedTuple):
    """A request that was sent and has no usable reply. For the other fields see Sent."""

    candidate: Candidate
    sent_ns: int
    input_tokens: int
    service_tier: str | None
    told: TokenUsage | None = None
    told_tier: str | None = None
    is_open: bool = False

    @property
    def usage(self) -> TokenUsage:
        """The reported usage, or else the prompt alone: nobody knows what was written after it."""
        return self.told or TokenUsage(input_tokens=self.input_tokens)

    @property
    def cost_nusd(self) -> int | None:
        """The cost at the reported or requested tier; None if the price or the usage is
        unknown."""
        if self.is_open and self.told is None:
            return None
        price = self.candidate.target.price
        return cost_nusd(self.usage, price, self.told_tier, asked_tier=self.service_tier)


def unanswered_of(candidate: Candidate, sent: Sent, input_tokens: int) -> Unanswered | None:
    """The record of a request without a reply; None if nothing was sent."""
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
