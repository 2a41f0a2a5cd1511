"""How many times as long the gaps of one run are as those of another, and how sure that is.

Gaps of one stream depend on each other, so that a bootstrap of single gaps would be too sure of
itself. Requests are drawn instead, each with all of its gaps. What many streams have in common (the
server stood still) is still counted once for each of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.bench.ratio import RESAMPLES, Ratio
from headrace.bench.statistics import CONFIDENCE, Samples, percentile

_FEWEST_RESAMPLES = 200
"""Five lie beyond either end of an interval of 95 %."""

_WORK = 40_000_000
"""Gaps that are counted over in all resamples of one side: about a second."""


class PooledGaps:
    """The gaps of one run, request by request."""

    def __init__(self, by_request: Sequence[Sequence[float]]) -> None:
        self.requests = len(by_request)
        every = [np.asarray(one, dtype=np.float64) for one in by_request]
        values: Samples = np.concatenate(every) if every else np.empty(0)
        owners = np.repeat(np.arange(self.requests), [len(one) for one in every])
        order = np.argsort(values, kind="stable")
        self.ordered: Samples = values[order]
        self._owners: NDArray[np.int64] = owners[order].astype(np.int64)

    def percentile(self, quantile: float) -> float | None:
        """Of all gaps; None of none."""
        return percentile(self.ordered, quantile) if self.ordered.size else None

    def redrawn(self, quantiles: Sequence[float], draw: np.random.Generator) -> Samples:
        """The percentiles of as many requests drawn with replacement; 0 where they have no gap."""
        picked = draw.integers(0, self.requests, self.requests)
        times = np.bincount(picked, minlength=self.requests)
        reached = np.cumsum(times[self._owners])
        total = int(reached[-1])
        if not total:
            return np.zeros(len(quantiles))
        # The first gap that so many do not exceed; one that was not drawn is never it.
        ranks = np.maximum(1, np.ceil(np.asarray(quantiles) * total))
        found: Samples = self.ordered[np.searchsorted(reached, ranks)]
        return found


def ratios_of_pooled_percentiles(
    ours: PooledGaps,
    base: PooledGaps,
    quantiles: Sequence[float],
    *,
    source: random.Random,
    resamples: int = RESAMPLES,
) -> list[Ratio | None]:
    """One for each quantile. None where a side has no gaps or the base's percentile is 0.

    No interval with fewer than two requests on a side, or where the redrawn base is 0. Of very many
    gaps there are fewer resamples, 200 at least.
    """
    plain = [_plain(ours.percentile(one), base.percentile(one)) for one in quantiles]
    if min(ours.requests, base.requests) < 2 or not ours.ordered.size or not base.ordered.size:
        return plain
    most = _WORK // max(ours.ordered.size, base.ordered.size)
    count = min(resamples, max(_FEWEST_RESAMPLES, most))
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


def _plain(ours: float | None, base: float | None) -> Ratio | None:
    """Without an interval."""
    return None if ours is None or not base else Ratio(ours / base, None, None)
