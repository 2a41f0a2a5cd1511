"""The classifier in the package: logistic regression over hashed words, trained on English.

It is a heuristic. Its file and docs/gateway-routing.md say what it was trained on and how often it
was right on requests it had not seen.
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
    """The weights of the classifier."""

    bias: float
    scale: float
    buckets: str
    """Base64 of a signed byte per bucket, in units of `scale`."""
    counts: tuple[float, ...]
    """One weight for each of features.COUNTS."""
    recipe: str
    """How it was trained, for people to read."""
    held_out: dict[str, float]
    """Its results on held-out requests, for people to read."""


class LogisticClassifier:
    """A logistic regression. Raises ValueError for weights that do not fit this code's features."""

    def __init__(self, weights: Weights) -> None:
        self._bias = weights.bias
        self._counts = weights.counts
        bytes_of = array("b", base64.b64decode(weights.buckets))
        if len(bytes_of) != BUCKETS or len(weights.counts) != len(COUNTS):
            raise ValueError("the classifier's weights do not fit its features; train it again")
        self._buckets = [byte * weights.scale for byte in bytes_of]

    def probability(self, view: View) -> float:
        """See Classifier. Looks at the user's last turn."""
        return self.of_text(view.last_turn)

    def of_text(self, text: str) -> float:
        """The probability that a text is hard."""
        weights = self._buckets
        buckets = buckets_of(text)
        # A long text has many words, so each counts for less.
        score = sum(weights[bucket] for bucket in buckets) / math.sqrt(len(buckets) or 1)
        score += sum(
            count * weight for count, weight in zip(counts_of(text), self._counts, strict=True)
        )
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score + self._bias))))


def shipped() -> LogisticClassifier:
    """The classifier in the package; reading it takes some milliseconds."""
    raw = files(__package__).joinpath(WEIGHTS).read_bytes()
    return LogisticClassifier(msgspec.json.decode(raw, type=Weights))
