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
    """One rate: its trials pooled. low, high: the interval of the good share that decided.

    kept_up: False where the server did not keep up, which is never met whatever the shares are.
    """

    rate: float
    standing: Standing
    trials: int
    shares: tuple[Share, ...]
    low: float
    high: float
    kept_up: bool | None = None


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """highest_met: None where no rate met it. lowest_not_met: missed or undecided; None: none.

    decided: both ends of the bracket are, and it is as narrow as was asked. confidence: of the
    whole search, that no rate was called met that misses, as far as what `sure` names holds. told:
    in a sentence. trial_rule: how long a trial was, and why.
    """

    highest_met: float | None
    lowest_not_met: float | None
    decided: bool
    confidence: float
    steps: tuple[Step, ...]
    told: str
    trial_rule: str = ""

    @property
    def sure(self) -> str:
        """What is sure, and under which assumption, in a sentence."""
        if self.highest_met is None:
            return "Nothing is known of a rate that meets it."
        return (
            f"At {self.confidence:.0%} confidence, over all rates and looks, "
            f"{self.highest_met:.4g}/s meets it, if the server stays as it was and a fifth of "
            "a trial's requests says nearly nothing of the next"
        )
