"""How many times as much one run is as another, and how sure that is.

Percentiles by bootstrap, with the source of chance handed in; means by the normal approximation of
their ratio's logarithm. Both take samples for independent: compare one value of each request, or of
each second of the steady window for throughput, not gaps of the same stream.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from headrace.bench.statistics import (
    CONFIDENCE,
    FEWEST_FOR_MEAN,
    Interpolation,
    Samples,
    percentile,
)

RESAMPLES = 2000
"""Fifty lie beyond either end of an interval of 95 %."""


class Ratio(NamedTuple):
    """A ratio of two figures; low and high are None where no interval can be given."""

    ratio: float
    low: float | None
    high: float | None

    @property
    def differs(self) -> bool:
        """Whether the interval leaves 1 out."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def ratio_of_percentiles(
    ours: Sequence[float] | Samples,
    base: Sequence[float] | Samples,
    quantile: float = 0.5,
    *,
    source: random.Random,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    interpolation: Interpolation = "linear",
) -> Ratio | None:
    """Percentile of `ours` over that of `base`, with a bootstrap interval.

    None where there are no samples or the base's percentile is 0. Both are drawn anew, each from
    itself, `resamples` times; the interval holds the middle `confidence` of the ratios. With fewer
    than two samples on a side there is no interval.
    """
    above, below = (np.sort(np.asarray(side, dtype=np.float64)) for side in (ours, base))
    if not above.size or not below.size:
        return None
    under = percentile(below, quantile, interpolation)
    if not under:
        return None
    ratio = percentile(above, quantile, interpolation) / under
    if min(above.size, below.size) < 2:
        return Ratio(ratio, None, None)
    drawn = []
    for _ in range(resamples):
        divisor = _redrawn(below, quantile, source, interpolation)
        value = _redrawn(above, quantile, source, interpolation)
        drawn.append(value / divisor if divisor else math.inf)
    drawn.sort()
    miss = (1 - confidence) / 2
    return Ratio(ratio, percentile(drawn, miss, "nearest"), percentile(drawn, 1 - miss, "nearest"))


def _redrawn(
    ordered: Samples, quantile: float, source: random.Random, interpolation: Interpolation
) -> float:
    """The percentile of as many samples drawn with replacement, without drawing them.

    The k-th of n uniform draws is distributed as Beta(k, n + 1 − k), and the one after it cuts what
    is left as Beta(1, n − k) does.
    """
    count = len(ordered)
    if interpolation == "nearest":
        # As `percentile` has it, so that both are of the same sample.
        rank = float(max(1, math.ceil(round(quantile * count, 9))) - 1)
    else:
        rank = quantile * (count - 1)
    k = math.floor(rank) + 1
    at = source.betavariate(k, count + 1 - k)
    below = float(ordered[min(count - 1, math.floor(at * count))])
    share = rank - math.floor(rank)
    if share == 0 or k == count:
        return below
    at += (1 - at) * source.betavariate(1, count - k)
    return below + share * (float(ordered[min(count - 1, math.floor(at * count))]) - below)


def ratio_of_means(
    ours: Sequence[float] | Samples,
    base: Sequence[float] | Samples,
    *,
    confidence: float = CONFIDENCE,
) -> Ratio | None:
    """Mean of `ours` over that of `base`; None where there are no samples or a mean is not above 0.

    No interval with fewer than FEWEST_FOR_MEAN samples on a side.
    """
    above, below = (np.asarray(side, dtype=np.float64) for side in (ours, base))
    if not above.size or not below.size or above.mean() <= 0 or below.mean() <= 0:
        return None
    ratio = float(above.mean() / below.mean())
    if min(above.size, below.size) < FEWEST_FOR_MEAN:
        return Ratio(ratio, None, None)
    error = math.hypot(*(_relative_error(side) for side in (above, below)))
    reach = math.exp(NormalDist().inv_cdf((1 + confidence) / 2) * error)
    return Ratio(ratio, ratio / reach, ratio * reach)


def _relative_error(samples: Samples) -> float:
    return float(samples.std(ddof=1) / math.sqrt(samples.size) / samples.mean())
