"""Standard errors of figures over the tokens of a text, which are not independent of each other.

Neighbouring tokens share what makes them hard, so the usual error, which counts each as a sample
of its own, is too small. Here the samples are blocks of consecutive scored positions: the windows,
or equal parts of them where there are fewer than `LEAST_BLOCKS`. Windows are half a window of
unscored text apart, so what ties two of them together is what the whole text has in common. Parts
of one window touch, and their errors remain somewhat too small: more text is the remedy.

Mean, over k blocks of n_b tokens with mean m: SE = sqrt(k / (k - 1) * sum_b s_b^2) / n, where
s_b is the sum of (x - m) over block b, the linearised error of a ratio of sums over clusters.
Source: Cochran, Sampling Techniques, 3rd ed., 6.3; as used for evaluations in Miller 2024,
arXiv:2411.00640, section 2.2.

Quantiles, maximum: the standard deviation over `RESAMPLES` texts of k blocks, drawn with
replacement. Source: Efron & Tibshirani, An Introduction to the Bootstrap, 8.6, 9.2 (blocks). The
bootstrap does not converge for a maximum (Bickel & Freedman 1981): its figure says how much the
maximum hangs on single blocks, no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEAST_BLOCKS = 32
"""Fewer samples give a standard error that is off by more than an eighth: 1 / sqrt(2 (k - 1))."""
RESAMPLES = 400
"""A standard deviation of so many draws is known within 4 %: 1 / sqrt(2 * 400)."""


def block_lengths(windows: Sequence[int]) -> list[int]:
    """Tokens of each block, in order, of windows with so many scored tokens.

    A window is cut into equal parts where there are fewer windows than `LEAST_BLOCKS`; none of
    them is empty.
    """
    if not windows:
        return []
    parts = -(-LEAST_BLOCKS // len(windows))
    lengths = []
    for tokens in windows:
        count = min(parts, tokens)
        ends = [tokens * (part + 1) // count for part in range(count)]
        lengths += [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return lengths


def mean_error(values: Floats, blocks: Sequence[int]) -> float:
    """The standard error of the mean of values f64[N] in blocks of so many; 0 with one block."""
    count = len(blocks)
    if count < 2:
        return 0.0
    starts = np.cumsum([0, *blocks[:-1]])
    sums = np.add.reduceat(values - values.mean(), starts)
    return math.sqrt(count / (count - 1) * float(sums @ sums)) / len(values)


def quantile_errors(
    values: Floats, blocks: Sequence[int], quantiles: Sequence[float], seed: int
) -> list[float]:
    """Standard errors of quantiles (1 is the maximum) of values f64[N] in blocks of so many.

    Quantiles lie between two values by linear interpolation, as in `numpy.quantile`. The same seed
    draws the same blocks; 0 each with one block.
    """
    count = len(blocks)
    if count < 2:
        return [0.0] * len(quantiles)
    random = np.random.default_rng(seed)
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    block_of = np.repeat(np.arange(count), blocks)[order]
    found = np.empty((RESAMPLES, len(quantiles)))
    for draw in found:
        times = np.bincount(random.integers(0, count, count), minlength=count)
        up_to = np.cumsum(times[block_of])
        draw[:] = _quantiles(ranked, up_to, quantiles)
    return [float(error) for error in found.std(axis=0, ddof=1)]


def _quantiles(
    ranked: Floats, up_to: npt.NDArray[np.int64], quantiles: Sequence[float]
) -> list[float]:
    """Of values in order, of which the first i are there up_to[i - 1] times in all."""
    last = int(up_to[-1]) - 1
    places = [q * last for q in quantiles]
    low = ranked[np.searchsorted(up_to, [math.floor(place) for place in places], "right")]
    high = ranked[np.searchsorted(up_to, [math.ceil(place) for place in places], "right")]
    return [
        float(a + (b - a) * (place - math.floor(place)))
        for a, b, place in zip(low, high, places, strict=True)
    ]
