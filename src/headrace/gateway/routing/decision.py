"""The targets that are tried, in order, and those that are not: what `gateway explain` prints."""

from __future__ import annotations

from typing import NamedTuple

from headrace.gateway.targets.target import Target


class Candidate(NamedTuple):
    """A target that may be tried."""

    target: Target
    model: str
    score: float
    """Orders the targets of one model and one order, lowest first."""
    reasons: tuple[str, ...]
    """Why it has its place, for people to read."""
    variant: str = ""
    """The A/B variant it belongs to."""


class LeftOut(NamedTuple):
    """A target that is skipped."""

    target: str
    model: str
    reason: str
    for_s: float | None = None
    """How long the reason holds; None if it does not pass."""
    too_long: bool = False
    """Whether the prompt is certainly too long for it."""
    rate_limited: bool = False
    """Whether a rate limit is the reason."""
    remedy: str = ""
    """What an operator can do; clients do not read it."""
    by_request: bool = False
    """Whether a parameter or the content of the request is the reason, which the client can
    change."""

    @property
    def for_operators(self) -> str:
        """The reason, with what an operator can do."""
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


class Decision(NamedTuple):
    """The result of routing a request."""

    candidates: tuple[Candidate, ...]
    """In the order in which they are tried."""
    left_out: tuple[LeftOut, ...]
    assigned: str = ""
    """The A/B variant of the first model; "" without one."""
    sides: tuple[tuple[str, str], ...] = ()
    """Name and variant of each model with variants."""
