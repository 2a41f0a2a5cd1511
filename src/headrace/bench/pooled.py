"""Samples of which a request has several, or that weigh unlike: their percentiles, and how sure.

Gaps of one stream depend on each other, so that an interval from single gaps would be too sure of
itself. Requests are drawn instead, each with all of its gaps (a cluster bootstrap). What many
streams have in common (the server stood still) is still counted once for each of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.bench.statistics import (
    CONFIDENCE,
    FEWEST_FOR_MEAN,
    FEWEST_FOR_P99,
    Distribution,
    Interpolation,
    Interval,
    Samples,
    distribution,
    percentile,
    weighted_percentiles,
)

FEWEST_RESAMPLES = 200
"""Five lie beyond either end of an interval of 95 %."""

_RESAMPLES = 400
"""Ten lie beyond either end of an interval of 95 %."""

_WORK = 20_000_000
"""Samples that are counted over in all resamples: about half a second."""

FEWEST_REQUESTS = 30
"""Of fewer a drawn set is too often one of the same few, and the interval too narrow."""


class PooledSamples:
    """Values with the request that each is of: owners[i] is the number, from 0, of values[i]'s.

    requests: how many there are, those without a value counted. weights: None where all are alike.
    """

    def __init__(
        self,
        values: Samples,
        owners: NDArray[np.int64],
        requests: int,
        weights: Samples | None = None,
        interpolation: Interpolation = "linear",
    ) -> None:
        order = np.argsort(values, kind="stable")
        self.requests = requests
        self.ordered: Samples = values[order]
        self.weights: Samples | None = None if weights is None else weights[order]
        self.interpolation: Interpolation = interpolation
        self._owners: NDArray[np.int64] = owners[order].astype(np.int64)

    @property
    def size(self) -> int:
        """How many values there are."""
        return int(self.ordered.size)

    def percentile(self, quantile: float) -> float | None:
        """Of all values; None of none."""
        return self.percentiles([quantile])[0] if self._has_any else None

    def percentiles(self, quantiles: Sequence[float]) -> list[float]:
        """Of all values, of which there is one at least."""
        if self.weights is None:
            return [percentile(self.ordered, one, self.interpolation) for one in quantiles]
        return weighted_percentiles(self.ordered, self.weights, quantiles)

    @property
    def mean(self) -> float | None:
        """Of all values; None of none."""
        if not self._has_any:
            return None
        return float(np.average(self.ordered, weights=self.weights))

    @property
    def mean_error(self) -> float | None:
        """Standard error of the mean, a ratio of two sums over requests (Cochran, "Sampling
        Techniques", chapter 6); None of fewer than two requests."""
        mean, count = self.mean, self.requests
        if mean is None or count < 2:
            return None
        weights = np.ones(self.size) if self.weights is None else self.weights
        off = np.bincount(self._owners, weights=(self.ordered - mean) * weights, minlength=count)
        variance = float((off**2).sum()) * count / (count - 1)
        return math.sqrt(variance) / float(weights.sum())

    def redrawn(self, quantiles: Sequence[float], draw: np.random.Generator) -> Samples:
        """The percentiles, by "nearest", of as many requests drawn with replacement; 0 where they
        have no value."""
        picked = draw.integers(0, self.requests, self.requests)
        weights = np.bincount(picked, minlength=self.requests)[self._owners].astype(np.float64)
        if self.weights is not None:
            weights *= self.weights
        if not weights.any():
            return np.zeros(len(quantiles))
        return np.asarray(weighted_percentiles(self.ordered, weights, quantiles))

    @property
    def _has_any(self) -> bool:
        return bool(self.size) and (self.weights is None or bool(self.weights.any()))


def one_each(values: Sequence[float]) -> PooledSamples:
    """Of requests that have one value each, all alike."""
    return PooledSamples(np.asarray(values, dtype=np.float64), np.arange(len(values)), len(values))


def resamples_of(size: int, wanted: int, work: int = _WORK) -> int:
    """As many as are wanted; fewer, FEWEST_RESAMPLES at least, of very many samples."""
    return min(wanted, max(FEWEST_RESAMPLES, work // max(1, size)))


def pooled_distribution(
    of: PooledSamples, *, source: random.Random, degrees: int = 0
) -> Distribution | None:
    """Of unweighted values, several of a request; None of none.

    Marked where the requests are few, however many values they have. Intervals: of percentiles by
    bootstrap over requests, of the mean by the normal approximation; none of fewer than
    FEWEST_REQUESTS requests. source: of chance.
    """
    plain = distribution(of.ordered, interpolation=of.interpolation, degrees=degrees)
    if plain is None:
        return None
    p50, p99 = _intervals(of, (0.5, 0.99), source)
    return msgspec.structs.replace(
        plain,
        p99_marked=of.requests < FEWEST_FOR_P99,
        mean_interval=_mean_interval(of),
        p50_interval=p50,
        p99_interval=p99,
    )


def _intervals(
    of: PooledSamples, quantiles: Sequence[float], source: random.Random
) -> list[Interval]:
    if of.requests < FEWEST_REQUESTS:
        return [Interval(None, None)] * len(quantiles)
    draw = np.random.default_rng(source.getrandbits(64))
    count = resamples_of(of.size, _RESAMPLES)
    drawn = np.sort([of.redrawn(quantiles, draw) for _ in range(count)], axis=0)
    miss = (1 - CONFIDENCE) / 2
    return [
        Interval(percentile(side, miss, "nearest"), percentile(side, 1 - miss, "nearest"))
        for side in drawn.T
    ]


def _mean_interval(of: PooledSamples) -> Interval:
    mean, error = of.mean, of.mean_error
    if mean is None or error is None or of.requests < FEWEST_FOR_MEAN:
        return Interval(None, None)
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
    return Interval(mean - reach, mean + reach)
