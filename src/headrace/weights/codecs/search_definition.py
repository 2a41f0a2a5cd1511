"""What the search for scales finds, defined: one operation of float32 at a time.

What is added up is added in the order of values within a group, and as float64 in the order of
groups across a block. `native/encode/search.h` computes the same bits faster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headrace.weights.codecs.codec import Bytes, Floats
from headrace.weights.codecs.search import (
    NON_LINEAR,
    SEARCHED,
    BlockCodes,
    SearchedKind,
    room_for,
)

Doubles = npt.NDArray[np.float64]

_MIDDLES = (NON_LINEAR[:-1] + NON_LINEAR[1:]) * np.float32(0.5)
_RISES = NON_LINEAR[1:] - NON_LINEAR[:-1]
# Groups whose magnitudes are all below this become zeros: F16 scales end at 6e-8.
_NOTHING = np.float32(1e-15)
_REFITS = 3
_ROUNDS = 2
_ZERO = np.float32(0)


def find(kind: str, values: Floats, weights: Floats | None) -> BlockCodes:
    """Codes of float32[blocks, elements], weighed by the same shape or equally."""
    facts = SEARCHED[kind]
    n = len(values)
    found = room_for(facts, n)
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
