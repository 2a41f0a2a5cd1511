"""What stands for a model's quality where nobody states it: its size. And what the bits cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headrace.catalog.fact import Confidence
from headrace.catalog.rows import Model, Quantization

PROXY = "√(total · active parameters), a proxy: the catalog states no quality that compares models"


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The quality of an option, as far as the catalog states it."""

    parameters: float | None
    """The proxy; None where the maker publishes no size."""
    bits: float | None = None
    """Bits of a weight."""
    kept: str = ""
    """What is stated of the loss by the bits, in words with its source; "" for nothing."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "proxy_parameters": None if self.parameters is None else round(self.parameters),
            "proxy": PROXY, "bits_per_weight": self.bits, "quantization_loss": self.kept,
        }  # fmt: skip


def quality_of(model: Model, quantization: Quantization | None = None) -> Quality:
    """Of a model, with its weights in that kind; None: as an API runs it, which nobody says."""
    total, active = model.total_parameters, model.active_parameters
    proxy = None if total is None else math.sqrt(total * (active or total))
    if quantization is None:
        return Quality(parameters=proxy)
    return Quality(parameters=proxy, bits=quantization.bits_per_weight, kept=_kept(quantization))


def _kept(row: Quantization) -> str:
    """The perplexity it costs where that is stated, else the share of the score."""
    for model, delta in row.perplexity_delta.items():
        fact = row.facts[f"perplexity_delta.{model}"]
        return f"perplexity {delta:+g} on {model} ({fact.source})"
    if row.quality_share is None:
        return ""
    fact = row.facts["quality_share"]
    claim = ", a claim" if fact.confidence is Confidence.CLAIM else ""
    return f"{row.quality_share} of the score ({fact.source}{claim})"
