"""Numbers about samples: percentiles, means, and how sure they are.

Every percentile states its interpolation. Intervals of percentiles are exact ones from order
statistics and assume nothing about the shape of the distribution, but that samples are independent:
gaps of one request are not, and theirs are in `pooled`. Knows neither requests nor units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

Interpolation = Literal["linear", "nearest"]
"""linear: between the two samples around rank q·(n − 1) (type 7 of Hyndman and Fan, NumPy's own).
nearest: the least sample that at least a share q of them does not exceed (their type 1)."""

Samples = NDArray[np.float64]

FEWEST_FOR_P99 = 1000
"""With fewer samples less than ten lie above the 99th percentile, and it is marked."""

FEWEST_FOR_MEAN = 30
"""With fewer samples the mean is too far from normally distributed to give it an interval."""

CONFIDENCE = 0.95

# Beyond this many samples the normal approximation is off by at most one rank.
_EXACT_RANKS_TO = 2000

_SHOWN = (0.5, 0.9, 0.95, 0.99)


class Interval(NamedTuple):
    """The interval that holds the true value with the stated confidence; None: too few samples for
    a bound."""

    low: float | None
    high: float | None


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a set of samples, in their own unit."""

    count: float
    """Number of samples, or the sum of their weights."""
    mean: float
    std: float
    least: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float
    p99_marked: bool
    """Whether there are fewer than FEWEST_FOR_P99 independent samples (requests, where each has
    many gaps), so that the 99th percentile is little more than the maximum."""
    mean_interval: Interval
    p50_interval: Interval
    p99_interval: Interval
    interpolation: Interpolation


def distribution(
    samples: Sequence[float] | Samples,
    weights: Sequence[float] | Samples | None = None,
    *,
    interpolation: Interpolation = "linear",
    scale: float = 1.0,
    degrees: int = 0,
    confidence: float = CONFIDENCE,
) -> Distribution | None:
    """Of samples, each times `scale`; None of none, or where all weights are 0.

    Weighted samples need "nearest" and have no intervals. degrees: what is taken from the count in
    the standard deviation, 0 for that of a population and 1 for that of a sample.
    """
    values = np.asarray(samples, dtype=np.float64) * scale
    if weights is not None:
        return _weighted(values, np.asarray(weights, dtype=np.float64), interpolation)
    if not values.size:
        return None
    values = np.sort(values)
    count = values.size
    mean = float(values.mean())
    std = float(values.std(ddof=degrees)) if count > degrees else 0.0
    p50, p90, p95, p99 = (percentile(values, q, interpolation) for q in _SHOWN)
    return Distribution(
        count=count,
        mean=mean,
        std=std,
        least=float(values[0]),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        most=float(values[-1]),
        p99_marked=count < FEWEST_FOR_P99,
        mean_interval=_mean_interval(values, confidence),
        p50_interval=percentile_interval(values, 0.5, confidence),
        p99_interval=percentile_interval(values, 0.99, confidence),
        interpolation=interpolation,
    )


def _weighted(
    values: Samples, weights: Samples, interpolation: Interpolation
) -> Distribution | None:
    if interpolation != "nearest":
        raise ValueError(
            f"interpolation {interpolation!r} of weighted samples is not supported; use 'nearest'"
        )
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    values, weights = values[weights > 0], weights[weights > 0]
    if not values.size:
        return None
    total = float(weights.sum())
    mean = float((values * weights).sum() / total)
    p50, p90, p95, p99 = weighted_percentiles(values, weights, _SHOWN)
    unknown = Interval(None, None)
    return Distribution(
        count=total,
        mean=mean,
        std=math.sqrt(float((weights * (values - mean) ** 2).sum() / total)),
        least=float(values[0]),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        most=float(values[-1]),
        p99_marked=values.size < FEWEST_FOR_P99,
        mean_interval=unknown,
        p50_interval=unknown,
        p99_interval=unknown,
        interpolation=interpolation,
    )


def weighted_percentiles(
    ordered: Samples, weights: Samples, quantiles: Sequence[float]
) -> list[float]:
    """Of samples in ascending order, at least one of a weight above 0, by "nearest"."""
    reached = np.cumsum(weights)
    # A share of floats: 0.95 · 20 is a little more than 19.
    wanted = np.round(np.asarray(quantiles, dtype=np.float64) * reached[-1], 9)
    # The sum may fall short of its own share by rounding; a weight of 0 is never reached.
    places = np.searchsorted(reached, np.clip(wanted, np.nextafter(0.0, 1.0), reached[-1]))
    return [float(one) for one in ordered[places]]


def percentile(
    ordered: Samples | Sequence[float], quantile: float, interpolation: Interpolation = "linear"
) -> float:
    """Of at least one sample, in ascending order; `quantile` from 0 to 1."""
    last = len(ordered) - 1
    if interpolation == "nearest":
        # Not ceil(q·n) of floats: 0.95 · 20 is a little more than 19.
        rank = math.ceil(round(quantile * (last + 1), 9))
        return float(ordered[max(0, rank - 1)])
    rank_below = math.floor(quantile * last)
    share = quantile * last - rank_below
    below = float(ordered[rank_below])
    if share == 0:
        return below
    return below + share * (float(ordered[rank_below + 1]) - below)


def percentile_interval(
    ordered: Samples | Sequence[float], quantile: float, confidence: float = CONFIDENCE
) -> Interval:
    """Of samples in ascending order: two of them, between which the true percentile lies.

    How many samples lie below the true percentile is binomial with probability `quantile`; either
    bound is missed with at most half of what `confidence` leaves. See Hahn and Meeker, "Statistical
    Intervals", chapter 5.
    """
    low, high = _ranks(len(ordered), quantile, confidence)
    return Interval(
        None if low is None else float(ordered[low]),
        None if high is None else float(ordered[high]),
    )


@lru_cache(maxsize=256)
def _ranks(count: int, quantile: float, confidence: float) -> tuple[int | None, int | None]:
    """Positions, from 0, of the samples that bound the percentile; None: none does."""
    miss = (1 - confidence) / 2
    if count > _EXACT_RANKS_TO:
        reach = NormalDist().inv_cdf(1 - miss) * math.sqrt(count * quantile * (1 - quantile))
        low, high = math.floor(count * quantile - reach) - 1, math.ceil(count * quantile + reach)
        return low if low >= 0 else None, high if high < count else None
    # P(at most r of the samples lie below the percentile), for r = 0 … count − 1.
    at_most, below = [], 0.0
    for rank in range(count):
        below += math.exp(_log_binomial(count, rank, quantile))
        at_most.append(below)
    # Sample r (from 0) lies above the percentile where at most r lie below it.
    low_rank = sum(1 for share in at_most if share <= miss) - 1
    high_rank = next((rank for rank, share in enumerate(at_most) if 1 - share <= miss), None)
    return low_rank if low_rank >= 0 else None, high_rank


def _log_binomial(count: int, hits: int, probability: float) -> float:
    ways = math.lgamma(count + 1) - math.lgamma(hits + 1) - math.lgamma(count - hits + 1)
    return ways + hits * math.log(probability) + (count - hits) * math.log1p(-probability)


def _mean_interval(values: Samples, confidence: float) -> Interval:
    """From the central limit theorem."""
    if values.size < FEWEST_FOR_MEAN:
        return Interval(None, None)
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * error
    return Interval(mean - reach, mean + reach)
