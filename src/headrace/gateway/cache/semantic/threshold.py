"""The similarity from which questions count as the same, measured on pairs judged by a person.

A false hit is a pair of different questions that the cache would take for the same: it gives a
client a wrong answer, while a miss costs only what having no cache costs. So the threshold is
chosen by the upper bound of the false-hit rate, not by its estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError
from headrace.gateway.cache.semantic.arithmetic import row_of
from headrace.gateway.cache.semantic.question import may_be_same

_MOST_PAIRS_BYTES = 64 * 2**20
# The normal quantile for an interval of 95 %.
_Z = 1.959964
_THRESHOLDS = (*(round(0.8 + 0.01 * at, 2) for at in range(20)), 0.995)

SHIPPED_PAIRS = Path(__file__).with_name("pairs.jsonl")
"""124 pairs in English, 64 of them different in ways that embedding models hardly notice."""


class Pair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pair of questions."""

    a: Annotated[str, Meta(min_length=1)]
    b: Annotated[str, Meta(min_length=1)]
    same: bool
    """Whether one answer is right for both."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share, `count` of `total`, with an interval of 95 % (Wilson 1927)."""

    count: int
    total: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share; NaN if total is 0."""
        return self.count / self.total if self.total else math.nan


class Row(NamedTuple):
    """The results at one threshold."""

    threshold: float
    hits: Rate
    """Among pairs that are the same."""
    false_hits: Rate
    """Among pairs that differ."""


def read_pairs(path: Path) -> list[Pair]:
    """Read one JSON object per line. Raises ConfigError with the number of an invalid line."""
    pairs: list[Pair] = []
    for number, line in enumerate(read_text_file(path, "--pairs", _MOST_PAIRS_BYTES).splitlines()):
        if not line.strip():
            continue
        try:
            pairs.append(msgspec.json.decode(line, type=Pair))
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{path}:{number + 1}: {error}; a line must be "
                '{"a": "...", "b": "...", "same": true}'
            ) from error
    for same in (True, False):
        if not any(pair.same is same for pair in pairs):
            word = "true" if same else "false"
            raise ConfigError(f"{path}: no pair has same: {word}; at least one is needed")
    return pairs


def rate_of(count: int, total: int) -> Rate:
    """Wilson's score interval, which holds for small numbers and for zero too."""
    if not total:
        return Rate(0, 0, 0.0, 1.0)
    share, square = count / total, _Z * _Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    spread = math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    half = _Z * spread / (1 + square / total)
    return Rate(count, total, max(0.0, middle - half), min(1.0, middle + half))


def similarities_of(pairs: Sequence[Pair], vectors: Sequence[bytes]) -> list[float | None]:
    """The cosine of each pair; None for pairs that the cache never compares. `vectors` holds those
    of a and b of each pair in turn, of length 1."""
    cosines: list[float | None] = []
    for at, pair in enumerate(pairs):
        if not may_be_same(pair.a, pair.b):
            cosines.append(None)
        else:
            cosines.append(float(row_of(vectors[2 * at]) @ row_of(vectors[2 * at + 1])))
    return cosines


def table_of(
    pairs: Sequence[Pair],
    similarities: Sequence[float | None],
    thresholds: Iterable[float] = _THRESHOLDS,
) -> list[Row]:
    """A row for each threshold, from the lowest."""
    rows: list[Row] = []
    for threshold in sorted(thresholds):
        hit = [cosine is not None and cosine >= threshold for cosine in similarities]
        rates = []
        for same in (True, False):
            of_kind = [was for was, pair in zip(hit, pairs, strict=True) if pair.same is same]
            rates.append(rate_of(sum(of_kind), len(of_kind)))
        rows.append(Row(threshold, *rates))
    return rows


def recommended(rows: Sequence[Row], most_false_hits: float) -> Row | None:
    """The lowest threshold from which the false-hit rate is certainly below; None if none is."""
    best = None
    for row in reversed(rows):
        if row.false_hits.high >= most_false_hits:
            break
        best = row
    return best


def pairs_needed(most_false_hits: float) -> int:
    """How many different pairs without a false hit show that the rate is lower."""
    return math.floor(_Z * _Z * (1 - most_false_hits) / most_false_hits) + 1
