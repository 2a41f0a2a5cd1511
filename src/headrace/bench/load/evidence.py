"""How much requests say that waited in one queue, and so are good or bad together.

The variance of the good share is taken from batch means (Law and Kelton, "Simulation modeling and
analysis", 9.5.3): a trial's requests in order of time are cut into batches so long that one says
nearly nothing of the next. Its ratio to that of independent requests gives their effective number,
corrected for the few batches (Korn and Graubard, "Confidence intervals for proportions with small
expected number of positive counts estimated from survey data", Survey Methodology 24, 1998), with
which the exact binomial interval is taken. How long is long enough is not known: of three lengths
the one that says least counts. Where all are equally good there is no variance to see; then, and as
an upper bound always, requests that were in flight together count as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from headrace.bench.proportion import proportion_interval

BATCHES = (20, 10, 5)
"""Of one trial."""
# Of fewer the variance is hardly known, and the correction for that leaves nothing.
_FEWEST = 10
_BISECTIONS = 60


class Outcomes(NamedTuple):
    """The outcome of each judged request of one trial, in order of time: whether it was good."""

    good: Sequence[bool]
    in_flight: float
    """Mean number of requests in flight while these were sent."""


def effective_number(trials: Sequence[Outcomes], miss: float) -> float:
    """As many independent requests say as much; 0 where a trial has too few to tell.

    miss: the error on either side of the interval that will be taken.
    """
    most = sum(len(one.good) / max(1.0, one.in_flight) for one in trials)
    if not trials or min(len(one.good) for one in trials) < BATCHES[0]:
        return 0.0
    values = [np.asarray(one.good, dtype=np.float64) for one in trials]
    judged = sum(len(one) for one in values)
    share = sum(float(one.sum()) for one in values) / judged
    if 0 < share < 1:
        for count in BATCHES:
            if count * len(trials) < _FEWEST:
                continue
            batches = [part for one in values for part in np.array_split(one, count)]
            left = math.fsum(float(part.sum() - share * len(part)) ** 2 for part in batches)
            variance = left * len(batches) / (len(batches) - 1) / judged**2
            if variance > 0:
                few = NormalDist().inv_cdf(1 - miss) / student(1 - miss, len(batches) - 1)
                most = min(most, share * (1 - share) / variance * few**2)
    return most


def share_interval(share: float, number: float, miss: float) -> tuple[float, float]:
    """Where the true share lies, from so many independent requests, rounded to the wider side."""
    if share > 0.5:
        # The same interval, from the few that were bad: sums over them are shorter.
        low, high = share_interval(1 - share, number, miss)
        return 1 - high, 1 - low
    judged = math.floor(number)
    low, _ = proportion_interval(math.floor(share * judged + 1e-9), judged, miss)
    _, high = proportion_interval(math.ceil(share * judged - 1e-9), judged, miss)
    return low, high


@lru_cache(maxsize=256)
def student(probability: float, freedom: int) -> float:
    """Quantile above one half of Student's t with so many degrees of freedom."""
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _within(middle, freedom) < 2 * probability - 1:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """P(|t| <= √freedom · tan(angle)): Abramowitz and Stegun 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * power / (power + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
