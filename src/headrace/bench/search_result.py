"""What a search for the highest rate that meets an SLO found, as it is kept and reported."""

from __future__ import annotations

from typing import Literal

import msgspec

Standing = Literal["met", "missed", "undecided"]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One demand and how it stands: good of judged requests, where `wanted` of all are to be.

    effective: as many independent requests would say as much; None: nobody worked it out.
    """

    name: str
    wanted: float
    good: int
    judged: int
    effective: float | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One rate: its trials pooled."""

    rate: float
    standing: Standing
    trials: int
    shares: tuple[Share, ...]
    low: float
    high: float
    """With `low`: the interval of the good share that decided."""
    kept_up: bool | None = None
    """False where the server did not keep up, which is never met whatever the shares are."""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search for the highest rate."""

    highest_met: float | None
    """None if no rate met the SLO."""
    lowest_not_met: float | None
    """Missed or undecided; None: none."""
    decided: bool
    """Both ends of the bracket are, and it is as narrow as requested."""
    confidence: float
    """Confidence, for the whole search, that every rate that counts as met does meet the SLO, under
    the assumptions in `sure`."""
    steps: tuple[Step, ...]
    told: str
    """The result in a sentence."""
    trial_rule: str = ""
    """How long a trial was, and why."""

    @property
    def sure(self) -> str:
        """What is sure, and under which assumption, in a sentence."""
        if self.highest_met is None:
            return "No rate is known to meet it."
        return (
            f"At {self.confidence:.0%} confidence, over all rates and looks, "
            f"{self.highest_met:.4g}/s meets it, provided that the server does not change and "
            "that a fifth of a trial's requests is nearly independent of the next"
        )
