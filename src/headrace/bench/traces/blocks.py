"""Prompts that share exactly the beginnings that a trace's hash ids say.

Each id stands for one block of tokens, always the same. Blocks that follow the same beginning
differ from their first token on, so that two prompts are equal just as far as their ids are: the
first tokens of a block are its number among its siblings, written in the digits of an alphabet of
tokens, the digit that changes fastest first. One digit does while there are at least as many tokens
as siblings; beyond that, siblings may share all digits but the last.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from headrace.bench.prompts.exact import Drawn, PromptWriter
from headrace.bench.traces.row import Trace
from headrace.errors import ConfigError

_Token = TypeVar("_Token", str, int)

# Blocks that are kept made: some 16 MB of texts. A trace's shared blocks are few and soon again.
_KEPT_BLOCKS = 8192
# Ids to fill blocks with; more of them would only be rarer.
_ALPHABET_TOKENS = 512


class PrefixBlocks:
    """Texts and token ids of a trace's blocks; the same seed gives the same."""

    def __init__(self, trace: Trace, writer: PromptWriter, seed: int) -> None:
        """Raises ConfigError for a trace without hash ids."""
        if trace.block_tokens is None:
            raise ConfigError(f"{trace.name}: has no hash ids; replay it by its lengths")
        self._tokens = trace.block_tokens
        self._writer = writer
        self._seed = seed
        self._rank: dict[int, int] = {}
        self._parent: dict[int, int | None] = {}
        self._children: dict[int | None, int] = {}
        for row in trace.rows:
            self._number(row.blocks or ())
        self._text = lru_cache(_KEPT_BLOCKS)(self._make_text)
        self._ids = lru_cache(_KEPT_BLOCKS)(self._make_ids)
        self._alphabet: tuple[int, ...] = ()

    def _number(self, blocks: Sequence[int]) -> None:
        parent: int | None = None
        for block in blocks:
            if block not in self._rank:
                self._rank[block] = self._children.get(parent, 0)
                self._parent[block] = parent
                self._children[parent] = self._rank[block] + 1
            parent = block

    def text(self, blocks: Sequence[int], tokens: int) -> Drawn:
        """A prompt of so many tokens; only its last block is mended to make the count exact."""
        head = "".join(self._text(block) for block in blocks[:-1])
        left = tokens - self._tokens * (len(blocks) - 1)
        last = blocks[-1]
        lead = self._digits(last, self._writer.leading)
        led = sum(map(self._writer.cost, lead))
        if left > led:
            return self._writer.text(
                tokens,
                self._source(last),
                head=(head + "".join(lead)).lstrip(),
                head_tokens=tokens - left + led,
            )
        # The last block is so short that it ends within its number.
        while len(lead) > 1 and led > left:
            led -= self._writer.cost(lead.pop())
        text = (head + "".join(lead)).lstrip()
        return Drawn(text, self._writer.count(text))

    def ids(self, blocks: Sequence[int], tokens: int) -> tuple[int, ...]:
        """Exactly so many token ids."""
        joined: list[int] = []
        for block in blocks:
            joined += self._ids(block)
        return tuple(joined[:tokens])

    def _make_text(self, block: int) -> str:
        digits = self._digits(block, self._writer.leading)
        left = self._tokens - sum(map(self._writer.cost, digits))
        return "".join([*digits, *self._writer.pieces(max(0, left), self._source(block))])

    def _make_ids(self, block: int) -> tuple[int, ...]:
        alphabet = self._ids_alphabet()
        digits = self._digits(block, alphabet)
        some = alphabet[:_ALPHABET_TOKENS]
        rest = self._source(block).choices(some, k=max(0, self._tokens - len(digits)))
        return (*digits, *rest)[: self._tokens]

    def _source(self, block: int) -> random.Random:
        return random.Random(f"{self._seed}:{block}")

    def _digits(self, block: int, alphabet: Sequence[_Token]) -> list[_Token]:
        """The block's number among its siblings; all of them have equally many digits."""
        rank, siblings = self._rank[block], self._children[self._parent[block]]
        base, span = len(alphabet), 1
        digits: list[_Token] = []
        while span < siblings or not digits:
            digits.append(alphabet[rank % base])
            rank, span = rank // base, span * base
        return digits

    def _ids_alphabet(self) -> tuple[int, ...]:
        if not self._alphabet:
            wanted = max(_ALPHABET_TOKENS, *self._children.values())
            self._alphabet = self._writer.distinct_ids(wanted)
        return self._alphabet
