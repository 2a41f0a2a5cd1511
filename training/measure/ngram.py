"""An n-gram model with interpolated modified Kneser-Ney smoothing, counted with NumPy.

Chen & Goodman, "An empirical study of smoothing techniques for language modeling" (1998): the
longest order has plain counts, every shorter order counts in how many different places an
n-gram was seen to continue, each order gives up three discounts (of counts 1, 2, and 3 or more)
and hands what they free to the next shorter one, and the last hands it to all symbols alike.

A document is a sequence of symbols, numbers from 0 to `n_symbols` - 1. It begins behind `order` - 1
symbols BOUNDARY and ends with one, which is predicted like any other; no n-gram crosses documents.
It knows nothing of text: symbols may be bytes or tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Symbols = NDArray[np.integer]
Keys = NDArray[np.uint64]
Floats = NDArray[np.float64]

KEY_BITS = 64
# N-grams sorted at a time: about 0.5 GB of arrays, whatever the size of the corpus.
AT_ONCE = 8_000_000
# Of counts 1, 2 and 3 or more, where too few n-grams were seen to estimate them (a byte alphabet
# has no symbol that continues a single other one); the values are KenLM's (K. Heafield, 2013).
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


class Grams(NamedTuple):
    """N-grams of one length: `contexts`, the packed symbols before the last, and `last`."""

    contexts: Keys
    last: Keys


@dataclass(frozen=True)
class Tally:
    """How often each n-gram of one length was counted.

    `contexts` [C] are the different contexts, sorted. `keys` [G] are the different n-grams, sorted:
    the place of the context in `contexts`, shifted left by `bits`, and the last symbol.
    `counts` [G] belong to `keys`.
    """

    bits: int
    contexts: Keys
    keys: Keys
    counts: NDArray[np.int64]

    def rows(self) -> NDArray[np.int64]:
        """The place of the context of each of `keys`, [G]."""
        return (self.keys >> np.uint64(self.bits)).astype(np.int64)

    def last(self) -> Keys:
        """The last symbol of each of `keys`, [G]."""
        return self.keys & np.uint64((1 << self.bits) - 1)


def tally(bits: int, chunks: Iterable[Grams]) -> Tally:
    """Count the n-grams of all chunks."""
    parts = [_tally_chunk(bits, chunk) for chunk in chunks]
    if not parts:
        raise ValueError("there are no documents to count: give at least one")
    contexts = np.unique(np.concatenate([part.contexts for part in parts]))
    keys = np.empty(sum(len(part.keys) for part in parts), dtype=np.uint64)
    counts = np.empty(len(keys), dtype=np.int64)
    filled = 0
    while parts:
        part = parts.pop()
        places = np.searchsorted(contexts, part.contexts).astype(np.uint64)
        here = slice(filled, filled + len(part.keys))
        keys[here] = (places[part.rows()] << np.uint64(bits)) | part.last()
        counts[here] = part.counts
        filled = here.stop
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    first = _first_of_runs(keys)
    return Tally(bits, contexts, keys[first], np.add.reduceat(counts, first))


def _tally_chunk(bits: int, chunk: Grams) -> Tally:
    contexts, places = np.unique(chunk.contexts, return_inverse=True)
    keys = (places.astype(np.uint64) << np.uint64(bits)) | chunk.last
    different, counts = np.unique(keys, return_counts=True)
    return Tally(bits, contexts, different, counts.astype(np.int64))


def _first_of_runs(values: NDArray[np.generic]) -> NDArray[np.intp]:
    """Where in a sorted array each different value begins."""
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))


def discounts(counts: NDArray[np.int64]) -> tuple[float, float, float]:
    """Chen & Goodman's D1, D2 and D3+, from how many n-grams were counted 1, 2, 3 and 4 times.

    FALLBACK_DISCOUNTS where one of those is none or the estimate is outside of 0 to its count.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == count)) for count in range(1, 5))
    if 0 in (n1, n2, n3, n4):
        return FALLBACK_DISCOUNTS
    ratio = n1 / (n1 + 2 * n2)
    found = (1 - 2 * ratio * n2 / n1, 2 - 3 * ratio * n3 / n2, 3 - 4 * ratio * n4 / n3)
    if all(0 <= value <= count for count, value in enumerate(found, start=1)):
        return found
    return FALLBACK_DISCOUNTS


@dataclass(frozen=True)
class Level:
    """One order of the model: discounted `counts`, and by context their sum and what is left.

    `counted` [C] is the sum of a context's counts, `left` [C] the share for the shorter order.
    """

    tally: Tally
    discounted: Floats
    counted: Floats
    left: Floats

    @classmethod
    def of(cls, counted: Tally) -> Level:
        amounts = np.array([0.0, *discounts(counted.counts)])
        taken = amounts[np.minimum(counted.counts, 3)]
        first = _first_of_runs(counted.rows())
        sums = np.add.reduceat(counted.counts, first).astype(np.float64)
        left = np.add.reduceat(taken, first) / sums
        return cls(counted, counted.counts - taken, sums, left)

    def probabilities(self, grams: Grams, shorter: Floats) -> Floats:
        """Of each of `grams`, where the next shorter order gives `shorter`; all are [N]."""
        rows, known = _find(self.tally.contexts, grams.contexts)
        keys = (rows.astype(np.uint64) << np.uint64(self.tally.bits)) | grams.last
        places, seen = _find(self.tally.keys, keys)
        found = np.where(seen, self.discounted[places], 0.0) / self.counted[rows]
        return np.where(known, found + self.left[rows] * shorter, shorter)


def _find(values: Keys, wanted: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where `wanted` is in sorted `values`, and whether it is there at all."""
    places = np.minimum(np.searchsorted(values, wanted), len(values) - 1).astype(np.int64)
    return places, values[places] == wanted


@dataclass(frozen=True)
class KneserNey:
    """A trained model: its levels, of one symbol first."""

    n_symbols: int
    boundary: int
    levels: tuple[Level, ...]

    @property
    def order(self) -> int:
        """Symbols of the longest n-gram."""
        return len(self.levels)

    def probabilities(self, document: Symbols) -> Floats:
        """Of every symbol of one document after those before it, [N]; not of its end."""
        return self._of_grams(next(_grams([document], self.order, self.boundary, self._bits)))[:-1]

    def distribution(self, before: Sequence[int]) -> Floats:
        """Of every symbol to be the next of a document that begins with `before`, [n_symbols]."""
        history = [self.boundary] * (self.order - 1) + list(before)
        packed = 0
        for symbol in history[len(history) - (self.order - 1) :]:
            packed = (packed << self._bits) | symbol
        contexts = np.full(self.n_symbols, packed, dtype=np.uint64)
        return self._of_grams(Grams(contexts, np.arange(self.n_symbols, dtype=np.uint64)))

    @property
    def _bits(self) -> int:
        return self.levels[0].tally.bits

    def _of_grams(self, grams: Grams) -> Floats:
        found = np.full(len(grams.last), 1.0 / self.n_symbols)
        for length, level in enumerate(self.levels):
            mask = np.uint64((1 << (length * self._bits)) - 1)
            found = level.probabilities(Grams(grams.contexts & mask, grams.last), found)
        return found


def train(documents: Iterable[Symbols], n_symbols: int, boundary: int, order: int = 5) -> KneserNey:
    """Count `documents`, which are read once.

    Raises ValueError when a context does not fit KEY_BITS or there is no document.
    """
    bits = max(1, (n_symbols - 1).bit_length())
    if bits * (order - 1) > KEY_BITS:
        raise ValueError(
            f"order is {order}: {order - 1} symbols of {bits} bits do not fit {KEY_BITS} bits; "
            f"at most {KEY_BITS // bits + 1} is possible with {n_symbols} symbols"
        )
    counted = tally(bits, _grams(documents, order, boundary, bits))
    levels = [Level.of(counted)]
    for length in range(order - 1, 0, -1):
        counted = tally(bits, _shortened(counted, length))
        levels.insert(0, Level.of(counted))
    return KneserNey(n_symbols, boundary, tuple(levels))


def _grams(documents: Iterable[Symbols], order: int, boundary: int, bits: int) -> Iterator[Grams]:
    """Every n-gram of every document, many documents at a time."""
    start = np.full(order - 1, boundary)
    pieces: list[Symbols] = []
    predicted: list[NDArray[np.bool_]] = []
    gathered = 0
    for document in documents:
        pieces += [start, document, np.array([boundary])]
        predicted += [np.zeros(len(start), dtype=bool), np.ones(len(document) + 1, dtype=bool)]
        gathered += len(document)
        if gathered >= AT_ONCE:
            yield _packed(np.concatenate(pieces), np.concatenate(predicted), order, bits)
            pieces, predicted, gathered = [], [], 0
    if pieces:
        yield _packed(np.concatenate(pieces), np.concatenate(predicted), order, bits)


def _packed(stream: Symbols, predicted: NDArray[np.bool_], order: int, bits: int) -> Grams:
    """The n-grams that end in a symbol of `stream` marked as `predicted`."""
    n_grams = len(stream) - (order - 1)
    contexts = np.zeros(n_grams, dtype=np.uint64)
    for place in range(order - 1):
        contexts <<= np.uint64(bits)
        contexts |= stream[place : place + n_grams].astype(np.uint64)
    kept = predicted[order - 1 :]
    return Grams(contexts[kept], stream[order - 1 :].astype(np.uint64)[kept])


def _shortened(longer: Tally, length: int) -> Iterator[Grams]:
    """The last `length` symbols of every different n-gram of one symbol more."""
    mask = np.uint64((1 << ((length - 1) * longer.bits)) - 1)
    rows, last = longer.rows(), longer.last()
    for first in range(0, len(last), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        yield Grams(longer.contexts[rows[part]] & mask, last[part])
