"""Texts with an exact number of tokens, whatever the tokenizer.

A piece's cost is measured once: how many tokens a text grows by when it is put behind it. Pieces
are added up to the length, and the whole text is then counted, because merging across pieces can
change it; what is too long or too short is mended at the end, a bounded number of times. Some
tokenizers have no text of some lengths: then the nearest that was found is given, with its count.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from headrace.bench.prompts.words import WORDS, RandomWords, WordSource
from headrace.bench.workload import Tokenization
from headrace.errors import ConfigError

# Nearly every text is right at the first count and the rest at the second or third.
ATTEMPTS = 8

# What a piece is put behind to be measured: one that ends a word in every vocabulary.
_ANCHOR = "the"
# For vocabularies in which no whole word is one token.
_LETTERS = tuple("etaoinshrdlu.,;")


class Drawn(NamedTuple):
    """A text, and how many tokens it has by the tokenizer that it was made with."""

    text: str
    tokens: int


class PromptWriter:
    """A writer of texts and token ids of given lengths from a tokenizer and a source of words."""

    def __init__(self, tokenization: Tokenization, words: WordSource | None = None) -> None:
        self.tokenization = tokenization
        self.words = words or RandomWords()
        self._costs: dict[str, int] = {}

    @cached_property
    def identity(self) -> bytes:
        """Equal ones write the same from equal sources, but for tokenizers that differ on no word
        of ours."""
        digest = hashlib.sha256(self.words.identity)
        digest.update(f"{self.tokenization.vocab_size}:".encode())
        ids = self.tokenization.encode(" ".join(WORDS))
        digest.update(",".join(map(str, ids)).encode())
        return digest.digest()

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.tokenization.encode(text))

    def cost(self, piece: str) -> int:
        """Tokens that a text grows by with the piece behind it; at least 1, so that adding ends."""
        known = self._costs.get(piece)
        if known is None:
            known = max(1, self.count(_ANCHOR + piece) - self._anchor_tokens)
            self._costs[piece] = known
        return known

    @cached_property
    def singles(self) -> tuple[str, ...]:
        """Pieces of one token: words with the space before them; letters where there are none."""
        pieces = [f" {word}" for word in WORDS if self._grows_by_one(f" {word}")]
        return tuple(pieces or [letter for letter in _LETTERS if self._grows_by_one(letter)])

    @cached_property
    def leading(self) -> tuple[str, ...]:
        """Pieces that cost the same at the beginning of a text as within: two or more of them.

        Those of `singles` that are one token without their space, too, as far as there are any.
        """
        both = tuple(piece for piece in self.singles if self.count(piece.lstrip()) == 1)
        words = tuple(f" {word}" for word in WORDS)
        return next(some for some in (both, self.singles, words) if len(some) >= 2)

    def distinct_ids(self, wanted: int) -> tuple[int, ...]:
        """So many different token ids, or as many as there are: those of our words first.

        Only ids whose text is encoded as that id again: no special ones, no parts of characters.
        Raises ConfigError for a tokenizer with fewer than two.
        """
        words = (self.tokenization.encode(piece) for piece in self.singles)
        found = dict.fromkeys(ids[0] for ids in words if len(ids) == 1)
        for token_id in range(self.tokenization.vocab_size):
            if len(found) >= wanted:
                break
            text = self.tokenization.decode([token_id])
            if text and list(self.tokenization.encode(text)) == [token_id]:
                found[token_id] = None
        if len(found) < 2:
            raise ConfigError("the tokenizer has no tokens that stand for text; use another")
        return tuple(found)[:wanted]

    @cached_property
    def _anchor_tokens(self) -> int:
        return self.count(_ANCHOR)

    def _grows_by_one(self, piece: str) -> bool:
        return self.count(_ANCHOR + piece) - self._anchor_tokens == 1

    def pieces(self, tokens: int, source: random.Random) -> list[str]:
        """Pieces that cost `tokens` together, or a little less where none is small enough."""
        drawn = self.words.draw(tokens, source)
        for piece in set(drawn) - self._costs.keys():
            self.cost(piece)
        totals = list(accumulate(map(self._costs.__getitem__, drawn)))
        whole = bisect_right(totals, tokens)
        left = tokens - (totals[whole - 1] if whole else 0)
        return [*drawn[:whole], *(source.choices(self.singles, k=left) if self.singles else ())]

    def text(
        self, tokens: int, source: random.Random, *, head: str = "", head_tokens: int | None = None
    ) -> Drawn:
        """A text that begins with `head` and has this many tokens, those of the head included.

        head_tokens: how many these are, where the caller knows; a wrong number costs attempts.
        Where that cannot be had in so many attempts, the nearest that was found. Raises ConfigError
        for less than one token and for a head that leaves no room.
        """
        if head_tokens is None:
            head_tokens = self.count(head) if head else 0
        missing = tokens - head_tokens
        if missing < 1:
            raise ConfigError(
                f"a prompt of {tokens} tokens has no room for the {head_tokens} that every "
                "prompt begins with and one more; use longer prompts"
            )
        pieces = self.pieces(missing, source)
        tried: list[Drawn] = []
        for _ in range(ATTEMPTS):
            if not pieces:
                pieces = list(self.words.draw(1, source))
            found = self._counted(head, pieces)
            if found.tokens == tokens:
                return found
            tried.append(found)
            pieces = self._mended(pieces, tokens - found.tokens, source)
        # Longer than is wanted, so that there is something to cut.
        more = self.words.draw(1 + max(0, tokens - tried[-1].tokens), source)
        tried += self._cut(tried[-1].text + "".join(more), head, tokens)
        return min(tried, key=lambda one: abs(one.tokens - tokens))

    def ids(self, tokens: int, source: random.Random) -> tuple[int, ...]:
        """Exactly so many token ids, of a text cut where they end."""
        if tokens < 1:
            raise ConfigError(f"a prompt of {tokens} tokens is too short; use 1 token or more")
        ids: list[int] = []
        while len(ids) < tokens:
            more = "".join(self.pieces(tokens - len(ids), source)) or self.words.draw(1, source)[0]
            found = self.tokenization.encode(more)
            if not found:
                raise ConfigError(f"the tokenizer gives no tokens for {more[:40]!r}; use another")
            ids += found
        return tuple(ids[:tokens])

    def _counted(self, head: str, pieces: Iterable[str]) -> Drawn:
        behind = "".join(pieces)
        text = head + behind if head else behind.lstrip()
        return Drawn(text, self.count(text))

    def _mended(self, pieces: list[str], missing: int, source: random.Random) -> list[str]:
        """Longer by what is missing, or shorter by what there is too much of."""
        if missing > 0:
            return pieces + self.pieces(missing, source)
        kept = len(pieces)
        while kept and missing < 0:
            kept -= 1
            missing += self.cost(pieces[kept])
        return pieces[:kept] + (self.pieces(missing, source) if missing else [])

    def _cut(self, text: str, head: str, tokens: int) -> Sequence[Drawn]:
        """The text cut after so many tokens, where what is left still begins with the head."""
        text = self.tokenization.decode(self.tokenization.encode(text)[:tokens])
        return [Drawn(text, self.count(text))] if text and text.startswith(head) else []
