"""The classifier that is shipped: logistic regression over hashed words, trained on English.

It is a heuristic. What it has learned, from what, and how often it was right on requests it had not
seen stands in its file and in docs/gateway-routing.md.
"""

from __future__ import annotations

import base64
import math
from array import array
from importlib.resources import files

import msgspec

from headrace.gateway.routing.complexity.features import BUCKETS, COUNTS, buckets_of, counts_of
from headrace.gateway.routing.complexity.view import View

WEIGHTS = "complexity.json"


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """buckets: base64 of a signed byte each, in units of `scale`. counts: one weight each, as
    features.COUNTS. recipe, held_out: for people."""

    bias: float
    scale: float
    buckets: str
    counts: tuple[float, ...]
    recipe: str
    held_out: dict[str, float]


class LogisticClassifier:
    """Raises ValueError for weights of another version than this code's features."""

    def __init__(self, weights: Weights) -> None:
        self._bias = weights.bias
        self._counts = weights.counts
        bytes_of = array("b", base64.b64decode(weights.buckets))
        if len(bytes_of) != BUCKETS or len(weights.counts) != len(COUNTS):
            raise ValueError("the classifier's weights do not fit its features; train it anew")
        self._buckets = [one * weights.scale for one in bytes_of]

    def probability(self, view: View) -> float:
        """See Classifier. Of the user's last turn."""
        return self.of_text(view.last_turn)

    def of_text(self, text: str) -> float:
        """The same of a text."""
        weights = self._buckets
        found = buckets_of(text)
        # A long text has many words; each says less then.
        score = sum(weights[one] for one in found) / math.sqrt(len(found) or 1)
        score += sum(
            one * weight for one, weight in zip(counts_of(text), self._counts, strict=True)
        )
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score + self._bias))))


def shipped() -> LogisticClassifier:
    """The one in the package; reading it takes some milliseconds."""
    raw = files(__package__).joinpath(WEIGHTS).read_bytes()
    return LogisticClassifier(msgspec.json.decode(raw, type=Weights))
