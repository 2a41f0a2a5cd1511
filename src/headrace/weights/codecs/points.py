"""The search for points of code books: the codes of IQ1, IQ2 and IQ3 blocks.

A run of 4 or 8 values becomes a point of a book, under a scale that a group of 16 or 32 shares. For
a scale s the best point p of values x is that of the least sum of w * (s * p - x)^2; as what zeros
cost is the same for all, of w * p * (p - 2 a) with a = x / s. It is found exactly, over all
points. Of each group several scales are tried, the one that explains most is kept and refined by
least squares, and scales are then rounded to odd multiples of d, with neighbours tried and d fitted
again as in `search`. Signs are those of the values; where eight values must have an even number of
negative ones and have not, the one that loses least takes the other sign. IQ1 has no signs: both
shifts of its points are tried.

What fits best by squares is too small: of x it holds 1 - e, where e is the relative squared error,
and a layer gives that much less than it should. Where e is large the d of every block is made some
percent larger, by which the error grows little and a model is nearer to itself.

`native/encode/points.h` computes the same bits faster; `find_points` here defines them, in float32
and in the order of values within a group. `search_points` is the native one.

It is a search of our own. That of llama-quantize (ggml-quants.c, quantize_row_iq2_xxs_impl and its
like), whose errors are the bar, rounds values one by one and looks for a point near to that, where
it is not in the book, in lists made before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.weights.codecs import _search
from headrace.weights.codecs.code_books import code_book
from headrace.weights.codecs.codec import Bytes, Floats
from headrace.weights.codecs.search import BLOCK, Steps, refuse, weights_of
from headrace.weights.codecs.search_definition import block_sums, inverse, rounded_to_half

Words = npt.NDArray[np.uint16]
_NOTHING = np.float32(1e-15)
_LARGEST = 1e9
_REFITS = 3
_ROUNDS = 2
_SHIFT = np.float32(0.125)
_ONE, _TWO = np.float32(1), np.float32(2)


class Signs(Enum):
    """The place where the signs of values are."""

    EVEN = auto()
    """Beside the points, an even number of eight negative."""
    FREE = auto()
    """Beside the points."""
    SHIFT_ALL = auto()
    """In the points, which a group has shifted one way or the other."""
    SHIFT_EACH = auto()
    """In the points, each of which is shifted one way or the other."""


@dataclass(frozen=True)
class PointKind:
    """A kind whose runs are points of a code book."""

    book: str
    """Its name in `code_books`."""
    width: int
    """Values in a group, which has a scale."""
    levels: tuple[int, ...]
    signs: Signs
    codes: int
    """A scale is unit * d * (2 c + 1), c from 0 to `codes`."""
    unit: float
    """A power of two."""
    steps: Steps
    """Multiples of the factor that takes a group's extreme to the last level."""
    stretch: float = 1
    """What d is multiplied by at the end."""

    @property
    def groups(self) -> int:
        """Scales in a block, d not counted."""
        return BLOCK // self.width

    @property
    def length(self) -> int:
        """Values of a point."""
        return int(code_book(self.book).shape[1])


_THREE = (8, 25, 43)
_EIGHT = (4, 12, 20, 28, 36, 44, 52, 62)
# The steps are those at which errors over normal and Student-t values stopped falling. The
# stretches lie between factors at which a model was seen to diverge less from itself than at 1 (of
# IQ2_XXS 1.04, of IQ1_S 1.02 to 1.06); IQ2_S and IQ1_M have those of their neighbours, with no
# series of their own. docs/quantization.md has what was measured, with the factors that stand here.
POINTED: Mapping[str, PointKind] = {
    "IQ3_XXS": PointKind("IQ3_XXS", 32, _EIGHT, Signs.EVEN, 15, 0.25, Steps(0.6, 0.06, 10)),
    "IQ3_S": PointKind(
        "IQ3_S", 32, (1, 3, 5, 7, 9, 11, 13, 15), Signs.FREE, 15, 1, Steps(0.6, 0.06, 10)
    ),
    "IQ2_XXS": PointKind("IQ2_XXS", 32, _THREE, Signs.EVEN, 15, 0.125, Steps(0.7, 0.08, 12), 1.03),
    "IQ2_XS": PointKind("IQ2_XS", 16, _THREE, Signs.EVEN, 15, 0.125, Steps(0.7, 0.08, 12)),
    "IQ2_S": PointKind("IQ2_S", 16, _THREE, Signs.FREE, 15, 0.125, Steps(0.7, 0.08, 12), 1.03),
    "IQ1_S": PointKind("IQ1_S", 32, (-1, 0, 1), Signs.SHIFT_ALL, 7, 1, Steps(1.0, 0.12, 10), 1.05),
    "IQ1_M": PointKind("IQ1_S", 16, (-1, 0, 1), Signs.SHIFT_EACH, 7, 1, Steps(1.0, 0.12, 10), 1.05),
}


class PointCodes(NamedTuple):
    """The codes of some blocks."""

    points: Words
    """uint16[blocks, 256 / length]: indices of the book."""
    signs: Bytes
    """uint8[blocks, 32]: sign bits of eight values each, from the lowest on; or 1 where the point
    is shifted down."""
    scales: Bytes
    """uint8[blocks, groups]."""
    d: Floats
    """float32[blocks], each of which an F16 holds; infinite where the scale was beyond."""


def encoded_points(kind: str, values: Floats, importance: Floats | None) -> PointCodes:
    """What `search_points` finds for any float32[blocks, 256] and importance of 0 or more, with d
    stretched.

    Raises CheckpointError where `kind` cannot hold a value.
    """
    peak = np.abs(values).max(axis=1, initial=0)
    if not (peak <= _LARGEST).all():
        refuse(kind, peak[~(peak <= _LARGEST)][0])
    found = search_points(kind, values, weights_of(values, importance))
    stretched = rounded_to_half(found.d * np.float32(POINTED[kind].stretch))
    found = found._replace(d=stretched)
    beyond = ~np.isfinite(found.d)
    if beyond.any():
        refuse(kind, peak[beyond].max())
    return found


def search_points(
    kind: str, values: Floats, weights: Floats | None, level: str = "auto"
) -> PointCodes:
    """Codes of float32[blocks, 256], weighed by the same shape or equally: the native search."""
    facts = POINTED[kind]
    found = _room(facts, len(values))
    _search.search_points(kind, values, weights, code_book(facts.book), *found, level)
    return found


def find_points(kind: str, values: Floats, weights: Floats | None) -> PointCodes:
    """The same as `search_points`, and its definition."""
    facts = POINTED[kind]
    found = _room(facts, len(values))
    # Values of a group apart: x[i] is value i of every group, w[i] its weight.
    x = np.ascontiguousarray(values.reshape(-1, facts.width).T)
    w = np.ones_like(x) if weights is None else weights.reshape(-1, facts.width).T.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        _find(facts, x, w, found)
    return found


def _room(facts: PointKind, n: int) -> PointCodes:
    return PointCodes(
        np.empty((n, BLOCK // facts.length), np.uint16),
        np.empty((n, BLOCK // 8), np.uint8),
        np.empty((n, facts.groups), np.uint8),
        np.empty(n, np.float32),
    )


class _Nearest(NamedTuple):
    """The nearest points of groups at a scale."""

    cost: Floats
    """float32[groups]: sum of w * q * (q - 2 a)."""
    points: npt.NDArray[np.intp]
    """[runs, groups]"""
    signs: npt.NDArray[np.bool_]
    """[width, groups] of negative values; or [runs, groups] of points that are shifted down."""
    q: Floats
    """float32[width, groups]: the values of the points."""


@lru_cache
def _halves(name: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The points of a book as the numbers of their low and their high halves."""
    book = code_book(name).astype(np.intp)
    half, levels = book.shape[1] // 2, int(book.max()) + 1
    powers = levels ** np.arange(half)
    return book[:, :half] @ powers, book[:, half:] @ powers


def _half_costs(a: Floats, w: Floats, levels: Floats) -> Floats:
    """float32[combinations, groups] of float32[2 or 4, groups]: what the levels cost together."""
    level = levels[:, None]
    each = [((level - (a_i + a_i)) * level) * w_i for a_i, w_i in zip(a, w, strict=True)]

    def both(low: Floats, high: Floats) -> Floats:
        return (high[:, None] + low[None]).reshape(-1, low.shape[1])

    pairs = [both(each[i], each[i + 1]) for i in range(0, len(each), 2)]
    return pairs[0] if len(pairs) == 1 else both(*pairs)


def _with_even_signs(
    facts: PointKind, a: Floats, w: Floats, negative: npt.NDArray[np.bool_]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    lanes = np.arange(a.shape[1])
    a, negative = a.copy(), negative.copy()
    for first in range(0, facts.width, 8):
        eight = slice(first, first + 8)
        loss = (w[eight] * a[eight]) * np.maximum(a[eight], np.float32(facts.levels[0]))
        odd = negative[eight].sum(axis=0) % 2 == 1
        at, lane = first + loss.argmin(axis=0)[odd], lanes[odd]
        a[at, lane] = -a[at, lane]
        negative[at, lane] = ~negative[at, lane]
    return a, negative


def _nearest(facts: PointKind, x: Floats, w: Floats, factor: Floats) -> _Nearest:
    shifted = facts.signs in (Signs.SHIFT_ALL, Signs.SHIFT_EACH)
    negative = np.zeros_like(x, np.bool_) if shifted else x < 0
    a = (x if shifted else np.abs(x)) * factor
    if facts.signs is Signs.EVEN:
        a, negative = _with_even_signs(facts, a, w, negative)
    low, high = _halves(facts.book)
    levels, half = np.array(facts.levels, np.float32), facts.length // 2
    shifts = np.array([_SHIFT, -_SHIFT] if shifted else [0], np.float32)
    runs = range(0, facts.width, facts.length)
    costs = np.empty((len(shifts), len(runs), x.shape[1]), np.float32)
    points = np.empty(costs.shape, np.intp)
    for number, shift in enumerate(shifts):
        for run, first in enumerate(runs):
            parts = (slice(first, first + half), slice(first + half, first + facts.length))
            tables = [_half_costs(a[part], w[part], levels + shift) for part in parts]
            scores = tables[0][low] + tables[1][high]
            points[number, run] = scores.argmin(axis=0)
            costs[number, run] = scores.min(axis=0)
    down = np.zeros(costs.shape[1:], np.bool_)
    if facts.signs is Signs.SHIFT_EACH:
        down = costs[1] < costs[0]
    elif facts.signs is Signs.SHIFT_ALL:
        down[:] = _summed(costs[1]) < _summed(costs[0])
    cost = _summed(np.where(down, costs[-1], costs[0]))
    index = np.where(down, points[-1], points[0])
    q = levels[code_book(facts.book)][index].swapaxes(1, 2)
    if shifted:
        q = q + np.where(down, -_SHIFT, _SHIFT)[:, None]
        return _Nearest(cost, index, down, q.reshape(x.shape))
    q = q.reshape(x.shape)
    return _Nearest(cost, index, negative, np.where(negative, -q, q))


def _summed(runs: Floats) -> Floats:
    total: Floats = np.zeros_like(runs[0])
    for run in runs:
        total += run
    return total


def _fit(x: Floats, w: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Sums of w * q * x and of w * q * q."""
    xq, qq = np.zeros_like(x[0]), np.zeros_like(x[0])
    for value, weight, level in zip(x, w, q, strict=True):
        wq = weight * level
        xq += wq * value
        qq += wq * level
    return xq, qq


def _fit_scale(facts: PointKind, x: Floats, w: Floats) -> Floats:
    """float32[groups]: the scale with which each group's points explain most of it."""
    peak = np.abs(x).max(axis=0)
    unit = inverse(np.where(peak < _NOTHING, np.float32(0), peak))
    scale, gain = np.zeros_like(unit), np.zeros_like(unit)
    for k in range(facts.steps.tries):
        stretch = np.float32(facts.steps.first) + np.float32(k) * np.float32(facts.steps.step)
        factor = unit * (np.float32(facts.levels[-1]) * stretch)
        tried = inverse(factor)
        won = -((_nearest(facts, x, w, factor).cost * tried) * tried)
        better = won > gain
        gain, scale = np.where(better, won, gain), np.where(better, tried, scale)
    for _ in range(_REFITS):
        xq, qq = _fit(x, w, _nearest(facts, x, w, inverse(scale)).q)
        fitted = xq * inverse(qq)
        won = fitted * xq
        better = (won > gain) & (fitted > 0)
        gain, scale = np.where(better, won, gain), np.where(better, fitted, scale)
    return scale


def _find(facts: PointKind, x: Floats, w: Floats, found: PointCodes) -> None:
    groups, unit = facts.groups, np.float32(facts.unit)
    most = np.float32(facts.codes)

    def units(d: Floats) -> Floats:
        return np.repeat(d, groups) * unit

    def error_at(codes: Floats, units: Floats) -> Floats:
        scale = units * (_TWO * codes + _ONE)
        return (_nearest(facts, x, w, inverse(scale)).cost * scale) * scale

    def improved(codes: Floats, units: Floats) -> tuple[Floats, Floats]:
        error, start = error_at(codes, units), codes
        for step in (-1, 1):
            other = np.clip(start + np.float32(step), np.float32(0), most)
            wrong = error_at(other, units)
            better = wrong < error
            error, codes = np.where(better, wrong, error), np.where(better, other, codes)
        return codes, error

    scale = _fit_scale(facts, x, w)
    d = rounded_to_half(scale.reshape(-1, groups).max(axis=1) / ((_TWO * most + _ONE) * unit))
    codes = (scale * inverse(units(d)) - _ONE) * np.float32(0.5)
    codes = np.rint(np.clip(codes, np.float32(0), most))
    codes, error = improved(codes, units(d))
    errors = block_sums(error, groups)
    for _ in range(_ROUNDS):
        odd = _TWO * codes + _ONE
        q = odd * _nearest(facts, x, w, inverse(units(d) * odd)).q
        tops, bottoms = (block_sums(sums, groups) for sums in _fit(x, w, q))
        fits = tops > 0
        bottoms = np.where(fits, bottoms * np.float64(unit), 1)
        following = np.where(fits, rounded_to_half(tops / bottoms), d)
        others, error = improved(codes, units(following))
        wrong = block_sums(error, groups)
        better = wrong < errors
        errors, d = np.where(better, wrong, errors), np.where(better, following, d)
        codes = np.where(np.repeat(better, groups), others, codes)
    nearest = _nearest(facts, x, w, inverse(units(d) * (_TWO * codes + _ONE)))
    blocks = len(d)
    found.points[:] = nearest.points.T.reshape(blocks, -1)
    if nearest.signs.shape[0] == facts.width:
        bits = nearest.signs.T.reshape(blocks, 32, 8)
        found.signs[:] = np.packbits(bits, axis=-1, bitorder="little")[..., 0]
    else:
        found.signs[:] = nearest.signs.T.reshape(blocks, -1)
    found.scales[:] = codes.reshape(blocks, groups)
    found.d[:] = d
