"""How many times as large samples of several a request are as another run's, and how sure that is.

The same for samples that weigh unlike. Requests are drawn, each with all that it has: `pooled`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from headrace.bench.pooled import PooledSamples, resamples_of
from headrace.bench.ratio import RESAMPLES, Ratio
from headrace.bench.statistics import CONFIDENCE, FEWEST_FOR_MEAN, percentile

_WORK = 40_000_000
"""Samples that are counted over in all resamples of one side: about a second."""


def ratios_of_pooled_percentiles(
    ours: PooledSamples,
    base: PooledSamples,
    quantiles: Sequence[float],
    *,
    source: random.Random,
    resamples: int = RESAMPLES,
) -> list[Ratio | None]:
    """One for each quantile. None where a side has no samples or the base's percentile is 0.

    No interval with fewer than two requests on a side, or where the redrawn base is 0. Of very many
    samples there are fewer resamples, 200 at least.
    """
    plain = [_plain(ours.percentile(one), base.percentile(one)) for one in quantiles]
    if min(ours.requests, base.requests) < 2 or not ours.size or not base.size:
        return plain
    count = resamples_of(max(ours.size, base.size), resamples, _WORK)
    draw = np.random.default_rng(source.getrandbits(64))
    above = np.stack([ours.redrawn(quantiles, draw) for _ in range(count)])
    below = np.stack([base.redrawn(quantiles, draw) for _ in range(count)])
    miss = (1 - CONFIDENCE) / 2
    found: list[Ratio | None] = []
    for at, ratio in enumerate(plain):
        if ratio is None or not below[:, at].all():
            found.append(ratio)
            continue
        drawn = np.sort(above[:, at] / below[:, at])
        low, high = (percentile(drawn, one, "nearest") for one in (miss, 1 - miss))
        found.append(ratio._replace(low=low, high=high))
    return found


def ratio_of_pooled_means(ours: PooledSamples, base: PooledSamples) -> Ratio | None:
    """None where a side has no samples or a mean is not above 0.

    By the normal approximation of the ratio's logarithm; no interval with fewer than
    FEWEST_FOR_MEAN requests on a side.
    """
    above, below = ours.mean, base.mean
    if above is None or below is None or above <= 0 or below <= 0:
        return None
    ratio = above / below
    errors = ours.mean_error, base.mean_error
    if min(ours.requests, base.requests) < FEWEST_FOR_MEAN or None in errors:
        return Ratio(ratio, None, None)
    error = math.hypot((errors[0] or 0.0) / above, (errors[1] or 0.0) / below)
    reach = math.exp(NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error)
    return Ratio(ratio, ratio / reach, ratio * reach)


def _plain(ours: float | None, base: float | None) -> Ratio | None:
    """Without an interval."""
    return None if ours is None or not base else Ratio(ours / base, None, None)
