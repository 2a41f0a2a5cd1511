"""The search for scales: which codes of a block keep the weighted squared error small.

A kind whose blocks have scales of their own in every 16 or 32 values has no formula for them: the
best scale depends on how the values round, and the scales are rounded themselves. For each group of
values, factors around the one that takes its extreme to the last level are tried. To the levels
that each gives, the scale (and minimum) is fitted by least squares, and the fit that explains most
is kept and refined by itself. The scales of a block are then rounded to whole numbers of d. Their
neighbours are tried too, by the error of the values as they will be decoded, and d is fitted again
to what came out, as long as that helps. Everything is weighed: sum of w * (y - x)^2, where w is
larger for larger values, and times the importance of a column where that is known.

`native/encode/search.h` computes the same bits faster; `find` here defines them, one operation of
float32 at a time, added up in the order of values within a group and as float64 in the order of
groups across a block. `search` is the native one.

It is a search of our own: that of llama-quantize (ggml-quants.c, make_qkx3_quants and its like),
whose errors are the bar (tests/weights/test_search.py), tries factors of another set, and neither
tries neighbours of codes nor fits d again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import _search
from headrace.weights.codecs.codec import Bytes, Floats

Doubles = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]

BLOCK = 256
# The levels of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl).
NON_LINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
_MIDDLES = (NON_LINEAR[:-1] + NON_LINEAR[1:]) * np.float32(0.5)
_RISES = NON_LINEAR[1:] - NON_LINEAR[:-1]
# Groups whose magnitudes are all below this become zeros: F16 scales end at 6e-8.
_NOTHING = np.float32(1e-15)
# Beyond it no scale of any kind is within F16, and squares would leave float32 before that shows.
_LARGEST = 1e9
# Added to weights whose mean is 1, so that what nothing is known of still has a value.
_LEAST_WEIGHT = np.float32(1e-6)
_REFITS = 3
_ROUNDS = 2
_ZERO = np.float32(0)


class Steps(NamedTuple):
    """The factors that are tried, as multiples of the one that reaches the last level exactly."""

    first: float
    step: float
    tries: int


@dataclass(frozen=True)
class SearchedKind:
    """A kind that is encoded by search."""

    elements: int
    """Values in a block."""
    width: int
    """Values in a group, which has a scale."""
    top: int
    """Levels are 0 to `top` above a minimum; or -`top` to `top` - 1 around zero; 0: NON_LINEAR."""
    codes: int
    """Scales are 0 to `codes`, or -`codes` to `codes` - 1; 0 where d is the only one."""
    minimums: bool
    """Whether groups have minimums, so that levels count from 0."""
    steps: Steps

    @property
    def groups(self) -> int:
        """Scales in a block, d not counted."""
        return self.elements // self.width if self.codes else 0


# The steps are those at which errors over normal, Student-t and uniform values and over trained
# weights stopped falling.
SEARCHED: Mapping[str, SearchedKind] = {
    "Q2_K": SearchedKind(256, 16, 3, 15, True, Steps(0.9, 0.05, 14)),
    "Q3_K": SearchedKind(256, 16, 4, 32, False, Steps(0.8, 0.05, 10)),
    "Q4_K": SearchedKind(256, 32, 15, 63, True, Steps(0.94, 0.02, 14)),
    "Q5_K": SearchedKind(256, 32, 31, 63, True, Steps(0.96, 0.01, 14)),
    "Q6_K": SearchedKind(256, 16, 32, 128, False, Steps(0.97, 0.01, 8)),
    "IQ4_NL": SearchedKind(32, 32, 0, 0, False, Steps(0.85, 0.03, 10)),
    "IQ4_XS": SearchedKind(256, 32, 0, 32, False, Steps(0.85, 0.03, 10)),
    "Q4_0": SearchedKind(32, 32, 8, 0, False, Steps(0.85, 0.03, 10)),
    "Q5_0": SearchedKind(32, 32, 16, 0, False, Steps(0.93, 0.02, 9)),
    "Q4_1": SearchedKind(32, 32, 15, 0, True, Steps(0.94, 0.02, 14)),
    "Q5_1": SearchedKind(32, 32, 31, 0, True, Steps(0.96, 0.01, 14)),
}


class BlockCodes(NamedTuple):
    """The codes of some blocks."""

    quants: Bytes
    """uint8[blocks, elements]: numbers of levels, the lowest is 0."""
    scales: Codes
    """int8[blocks, groups]."""
    minimums: Codes
    """int8[blocks, groups]; no columns where the kind has none."""
    d: Floats
    """float32[blocks], each of which an F16 holds; infinite where the scale was beyond."""
    dmin: Floats
    """float32[blocks]; empty where the kind has none."""


def encoded(kind: str, values: Floats, weights: Floats | None) -> BlockCodes:
    """What `search` finds for any float32[blocks, elements] and weights of 0 or more.

    Weights count within a block only, in proportion. Raises CheckpointError where `kind` cannot
    hold a value.
    """
    peak = np.abs(values).max(axis=1, initial=0)
    if not (peak <= _LARGEST).all():
        refuse(kind, peak[~(peak <= _LARGEST)][0])
    found = search(kind, values, weights_of(values, weights))
    beyond = ~np.isfinite(found.d)
    if len(found.dmin):
        beyond |= ~np.isfinite(found.dmin)
    if beyond.any():
        refuse(kind, peak[beyond].max())
    return found


def refuse(kind: str, peak: np.float32) -> NoReturn:
    """Raises CheckpointError about a block that `kind` cannot hold."""
    raise CheckpointError(
        f"a block whose largest magnitude is {peak:g} cannot be {kind}: values must be finite and "
        "its scales within F16's range, 65504; use BF16 or F32"
    )


def weights_of(values: Floats, importance: Floats | None) -> Floats:
    """The weights of a block's squared errors: |x| + rms(x), times the importance over its mean.

    Errors of large values cost more than their squares say: with this weight a mixture of experts
    was closer to itself (KL) in every mix than with equal ones, by 14% in Q2_K.
    """
    magnitudes = np.abs(values)
    # Summed in order, which `sum` is not on every machine.
    squares = np.cumsum(values * values, axis=1)[:, -1:]
    weights: Floats = magnitudes + np.sqrt(squares / np.float32(values.shape[1]))
    weights = np.where(weights > 0, weights, np.float32(1))
    if importance is not None:
        mean = np.cumsum(importance, axis=1)[:, -1:] / np.float32(values.shape[1])
        some = mean > 0
        balanced = np.where(some, importance / np.where(some, mean, np.float32(1)), np.float32(1))
        weights *= balanced + _LEAST_WEIGHT
    return weights


def search(kind: str, values: Floats, weights: Floats | None, level: str = "auto") -> BlockCodes:
    """Codes of float32[blocks, elements], weighed by the same shape or equally: the native search.

    Finite values of magnitudes up to 1e9, and weights from 0 on that are not all 0 in a group.
    """
    facts = SEARCHED[kind]
    found = _room(facts, len(values))
    _search.search(kind, values, weights, *found, level)
    return found


def find(kind: str, values: Floats, weights: Floats | None) -> BlockCodes:
    """The same as `search`, and its definition."""
    facts = SEARCHED[kind]
    n = len(values)
    found = _room(facts, n)
    # Values of a group apart: x[i] is value i of every group, w[i] its weight.
    x = np.ascontiguousarray(values.reshape(-1, facts.width).T)
    w = np.ones_like(x) if weights is None else weights.reshape(-1, facts.width).T.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        if facts.minimums and facts.codes:
            _find_from_minimum(facts, x, w, found)
        elif facts.minimums:
            scale, minimum = _fit_straight(facts, x, w)
            found.d[:], found.dmin[:] = rounded_to_half(scale), rounded_to_half(minimum)
            rungs = _clip((x + found.dmin) * inverse(found.d), 0, facts.top)
            found.quants[:] = np.rint(rungs).astype(np.uint8).T.reshape(n, -1)
        elif facts.codes:
            _find_around_zero(facts, x, w, found)
        else:
            level = _levels(facts)
            found.d[:] = rounded_to_half(_fit_scale(facts, x, w))
            quants = level(x * inverse(found.d))
            found.quants[:] = _numbers(facts, quants).T.reshape(n, -1)
    return found


def _room(facts: SearchedKind, n: int) -> BlockCodes:
    return BlockCodes(
        np.empty((n, facts.elements), np.uint8),
        np.empty((n, facts.groups), np.int8),
        np.empty((n, facts.groups if facts.minimums else 0), np.int8),
        np.empty(n, np.float32),
        np.empty(n if facts.minimums else 0, np.float32),
    )


def inverse(v: Floats) -> Floats:
    """1 / v, and 0 for 0."""
    some = v != 0
    return np.where(some, np.float32(1) / np.where(some, v, np.float32(1)), _ZERO)


def rounded_to_half(v: Floats | Doubles) -> Floats:
    """The float32 that the nearest F16 holds."""
    return v.astype(np.float32).astype(np.float16).astype(np.float32)


def _clip(v: Floats, low: float, high: float) -> Floats:
    return np.minimum(np.maximum(v, np.float32(low)), np.float32(high))


def _levels(facts: SearchedKind) -> Callable[[Floats], Floats]:
    if facts.top:
        return lambda v: np.rint(_clip(v, -facts.top, facts.top - 1))
    return _non_linear


def _non_linear(v: Floats) -> Floats:
    level = np.full_like(v, NON_LINEAR[0])
    for middle, rise in zip(_MIDDLES, _RISES, strict=True):
        level += np.where(v > middle, rise, _ZERO)
    return level


def _numbers(facts: SearchedKind, levels: Floats) -> Bytes:
    if facts.top:
        return (levels + np.float32(facts.top)).astype(np.uint8)
    return np.searchsorted(NON_LINEAR, levels).astype(np.uint8)


def _spread(per_block: Floats, groups: int) -> Floats:
    return np.repeat(per_block, groups)


def block_sums(per_group: Floats, groups: int) -> Doubles:
    """float64[blocks] of float32[blocks * groups], added in order."""
    columns = per_group.reshape(-1, groups).astype(np.float64)
    total = np.zeros(len(columns))
    for column in columns.T:
        total += column
    return total


def _fit_scale(facts: SearchedKind, x: Floats, w: Floats) -> Floats:
    """float32[groups]: the scale with which each group's levels explain most of it."""
    level = _levels(facts)
    lanes = np.arange(x.shape[1])
    at = np.abs(x).argmax(axis=0)
    extreme = x[at, lanes]
    unit = inverse(np.where(np.abs(extreme) < _NOTHING, _ZERO, extreme))
    scale, gain = np.zeros_like(unit), np.zeros_like(unit)

    def attempt(factor: Floats) -> None:
        nonlocal scale, gain
        xq, qq = np.zeros_like(unit), np.zeros_like(unit)
        for value, weight in zip(x, w, strict=True):
            q = level(value * factor)
            wq = weight * q
            xq += wq * value
            qq += wq * q
        fitted = xq * inverse(qq)
        won = fitted * xq
        better = won > gain
        gain = np.where(better, won, gain)
        scale = np.where(better, fitted, scale)

    first, last = (-facts.top, facts.top - 1) if facts.top else (NON_LINEAR[0], NON_LINEAR[-1])
    for k in range(facts.steps.tries):
        stretch = np.float32(facts.steps.first) + np.float32(k) * np.float32(facts.steps.step)
        attempt(unit * (np.float32(first) * stretch))
        attempt(unit * (np.float32(last) * stretch))
    for _ in range(_REFITS):
        attempt(inverse(scale))
    return scale


def _find_around_zero(facts: SearchedKind, x: Floats, w: Floats, found: BlockCodes) -> None:
    level, groups = _levels(facts), facts.groups
    scale = _fit_scale(facts, x, w)
    per_block = scale.reshape(-1, groups)
    at = np.abs(per_block).argmax(axis=1)
    extreme = per_block[np.arange(len(per_block)), at]
    d = rounded_to_half(extreme / np.float32(-facts.codes))

    def error_of(scale: Floats) -> Floats:
        factor = inverse(scale)
        error = np.zeros_like(scale)
        for value, weight in zip(x, w, strict=True):
            off = scale * level(value * factor) - value
            error += weight * off * off
        return error

    def improved(codes: Floats, unit: Floats) -> tuple[Floats, Floats]:
        error, start = error_of(unit * codes), codes
        for step in (-1, 1):
            other = _clip(start + np.float32(step), -facts.codes, facts.codes - 1)
            wrong = error_of(unit * other)
            better = wrong < error
            error, codes = np.where(better, wrong, error), np.where(better, other, codes)
        return codes, error

    codes = scale * inverse(_spread(d, groups))
    codes = np.rint(_clip(codes, -facts.codes, facts.codes - 1))
    codes, error = improved(codes, _spread(d, groups))
    errors = block_sums(error, groups)
    for _ in range(_ROUNDS):
        factor = inverse(_spread(d, groups) * codes)
        xq, qq = np.zeros_like(factor), np.zeros_like(factor)
        for value, weight in zip(x, w, strict=True):
            q = codes * level(value * factor)
            wq = weight * q
            xq += wq * value
            qq += wq * q
        tops, bottoms = block_sums(xq, groups), block_sums(qq, groups)
        fits = bottoms > 0
        following = np.where(fits, rounded_to_half(tops / np.where(fits, bottoms, 1)), d)
        others, error = improved(codes, _spread(following, groups))
        wrong = block_sums(error, groups)
        better = wrong < errors
        errors, d = np.where(better, wrong, errors), np.where(better, following, d)
        codes = np.where(np.repeat(better, groups), others, codes)
    quants = level(x * inverse(_spread(d, groups) * codes))
    found.quants[:] = _numbers(facts, quants).T.reshape(len(d), -1)
    found.scales[:] = codes.reshape(len(d), groups)
    found.d[:] = d


def _fit_straight(facts: SearchedKind, x: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Scale and minimum of each group, float32[groups] each."""
    # Minimums that are stored as they are may be above zero.
    free = not facts.codes
    low, high = x.min(axis=0), x.max(axis=0)
    if not free:
        low = np.minimum(low, _ZERO)
    # Sums are of x - low: values far from zero beside their spread would cancel.
    two = np.float32(2)
    sw, su = np.zeros_like(low), np.zeros_like(low)
    for value, weight in zip(x, w, strict=True):
        sw += weight
        su += weight * (value - low)
    mean = su * inverse(sw)
    if not free:
        mean = np.minimum(mean, -low)
    scale, minimum = np.zeros_like(low), -(mean + low)
    gain = two * (mean * su) - mean * mean * sw
    spread = high - low
    unit = inverse(np.where(spread < _NOTHING, _ZERO, spread))

    def attempt(depth: Floats, factor: Floats) -> None:
        nonlocal scale, minimum, gain
        q1, qq, uq = np.zeros_like(low), np.zeros_like(low), np.zeros_like(low)
        for value, weight in zip(x, w, strict=True):
            q = np.rint(_clip((value + depth) * factor, 0, facts.top))
            wq = weight * q
            q1 += wq
            qq += wq * q
            uq += wq * (value - low)
        over = inverse(np.maximum(sw * qq - q1 * q1, _ZERO))
        fitted = (sw * uq - su * q1) * over
        offset = (qq * su - q1 * uq) * over
        if not free:
            above = offset > -low
            fitted = np.where(above, (uq + low * q1) * inverse(qq), fitted)
            offset = np.where(above, -low, offset)
        explained = two * (fitted * uq + offset * su)
        won = explained - fitted * (fitted * qq + two * (offset * q1)) - offset * offset * sw
        better = (won > gain) & (fitted > 0)
        gain = np.where(better, won, gain)
        scale = np.where(better, fitted, scale)
        minimum = np.where(better, -(offset + low), minimum)

    for k in range(facts.steps.tries):
        stretch = np.float32(facts.steps.first) + np.float32(k) * np.float32(facts.steps.step)
        attempt(-low, unit * (np.float32(facts.top) * stretch))
    for _ in range(_REFITS):
        attempt(minimum, inverse(scale))
    return scale, minimum


def _find_from_minimum(facts: SearchedKind, x: Floats, w: Floats, found: BlockCodes) -> None:
    groups = facts.groups
    scale, minimum = _fit_straight(facts, x, w)
    limit = np.float32(facts.codes)
    d = rounded_to_half(np.maximum(scale.reshape(-1, groups).max(axis=1), _ZERO) / limit)
    dmin = rounded_to_half(np.maximum(minimum.reshape(-1, groups).max(axis=1), _ZERO) / limit)

    def level(value: Floats, depth: Floats, factor: Floats) -> Floats:
        return np.rint(_clip((value + depth) * factor, 0, facts.top))

    def error_of(scale: Floats, depth: Floats) -> Floats:
        factor = inverse(scale)
        error = np.zeros_like(scale)
        for value, weight in zip(x, w, strict=True):
            off = (scale * level(value, depth, factor) - depth) - value
            error += weight * off * off
        return error

    def improved(
        codes: Floats, depths: Floats, unit: Floats, deep: Floats
    ) -> tuple[Floats, Floats, Floats]:
        error, start, bottom = error_of(unit * codes, deep * depths), codes, depths
        for step in (-1, 0, 1):
            other = _clip(start + np.float32(step), 0, facts.codes)
            for sink in (-1, 0, 1):
                if step == 0 and sink == 0:
                    continue
                depth = _clip(bottom + np.float32(sink), 0, facts.codes)
                wrong = error_of(unit * other, deep * depth)
                better = wrong < error
                error, codes = np.where(better, wrong, error), np.where(better, other, codes)
                depths = np.where(better, depth, depths)
        return codes, depths, error

    unit, deep = _spread(d, groups), _spread(dmin, groups)
    codes = np.rint(_clip(scale * inverse(unit), 0, facts.codes))
    depths = np.rint(_clip(minimum * inverse(deep), 0, facts.codes))
    codes, depths, error = improved(codes, depths, unit, deep)
    errors = block_sums(error, groups)
    for _ in range(_ROUNDS):
        following = _refit(x, w, codes, depths, d, dmin, level, groups)
        others, sunk, error = improved(codes, depths, *(_spread(v, groups) for v in following))
        wrong = block_sums(error, groups)
        better = wrong < errors
        errors, d = np.where(better, wrong, errors), np.where(better, following[0], d)
        dmin = np.where(better, following[1], dmin)
        better = np.repeat(better, groups)
        codes, depths = np.where(better, others, codes), np.where(better, sunk, depths)
    depth = _spread(dmin, groups) * depths
    quants = level(x, depth, inverse(_spread(d, groups) * codes))
    found.quants[:] = quants.astype(np.uint8).T.reshape(len(d), -1)
    found.scales[:] = codes.reshape(len(d), groups)
    found.minimums[:] = depths.reshape(len(d), groups)
    found.d[:], found.dmin[:] = d, dmin


def _refit(
    x: Floats,
    w: Floats,
    codes: Floats,
    depths: Floats,
    d: Floats,
    dmin: Floats,
    level: Callable[[Floats, Floats, Floats], Floats],
    groups: int,
) -> tuple[Floats, Floats]:
    """The d and dmin of each block that fit best while all else stays."""
    depth, factor = _spread(dmin, groups) * depths, inverse(_spread(d, groups) * codes)
    parts = np.zeros((5, len(codes)), np.float32)
    for value, weight in zip(x, w, strict=True):
        q = codes * level(value, depth, factor)
        wq, wm = weight * q, weight * depths
        parts[0] += wq * q
        parts[1] += wq * depths
        parts[2] += wm * depths
        parts[3] += wq * value
        parts[4] += wm * value
    qq, qm, mm, xq, xm = (block_sums(part, groups) for part in parts)
    det = qq * mm - qm * qm
    both, alone = det > 0, (mm == 0) & (qq > 0)
    over = np.where(both, det, 1)
    of_d = np.where(alone, rounded_to_half(xq / np.where(alone, qq, 1)), d)
    return (
        np.where(both, rounded_to_half((xq * mm - qm * xm) / over), of_d),
        np.where(both, rounded_to_half((xq * qm - qq * xm) / over), dmin),
    )
