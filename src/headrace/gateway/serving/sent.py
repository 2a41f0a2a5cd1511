"""Requests that have left for a provider: from then on their prompts may be billed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.gateway.routing.decision import Candidate
from headrace.protocol.neutral.usage import TokenUsage


class Sent:
    """When a request's bytes left for a provider, None before."""

    __slots__ = ("_clock_ns", "at_ns")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.at_ns: int | None = None

    def mark(self) -> None:
        """They leave now."""
        self.at_ns = self._clock_ns()


class Unanswered(NamedTuple):
    """A request that was sent, and to which no reply has come."""

    candidate: Candidate
    sent_ns: int
    input_tokens: int

    @property
    def usage(self) -> TokenUsage:
        """Estimated: of the prompt alone, for nobody knows what was written after it."""
        return TokenUsage(input_tokens=self.input_tokens)
