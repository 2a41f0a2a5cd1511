"""The search for scales: which codes of a block keep the weighted squared error small.

A kind whose blocks have scales of their own in every 16 or 32 values has no formula for them: the
best scale depends on how the values round, and the scales are rounded themselves. For each group of
values, factors around the one that takes its extreme to the last level are tried. To the levels
that each gives, the scale (and minimum) is fitted by least squares, and the fit that explains most
is kept and refined by itself. The scales of a block are then rounded to whole numbers of d. Their
neighbours are tried too, by the error of the values as they will be decoded, and d is fitted again
to what came out, as long as that helps. Everything is weighed: sum of w * (y - x)^2, where w is
larger for larger values, and times the importance of a column where that is known.

`search` is the native one (`native/encode/search.h`); `search_definition` defines its bits.

It is a search of our own: that of llama-quantize (ggml-quants.c, make_qkx3_quants and its like),
whose errors are the bar (tests/weights/test_search.py), tries factors of another set, and neither
tries neighbours of codes nor fits d again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import _search
from headrace.weights.codecs.codec import Bytes, Floats

Codes = npt.NDArray[np.int8]

BLOCK = 256
# The levels of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl).
NON_LINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
# Beyond it no scale of any kind is within F16, and squares would leave float32 before that shows.
_LARGEST = 1e9
# Added to weights whose mean is 1, so that what nothing is known of still has a value.
_LEAST_WEIGHT = np.float32(1e-6)


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
    found = room_for(facts, len(values))
    _search.search(kind, values, weights, *found, level)
    return found


def room_for(facts: SearchedKind, n: int) -> BlockCodes:
    """Unwritten codes of `n` blocks."""
    return BlockCodes(
        np.empty((n, facts.elements), np.uint8),
        np.empty((n, facts.groups), np.int8),
        np.empty((n, facts.groups if facts.minimums else 0), np.int8),
        np.empty(n, np.float32),
        np.empty(n if facts.minimums else 0, np.float32),
    )
