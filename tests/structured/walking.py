"""Texts of a grammar, drawn token by token with a preference for ending."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from headrace.structured.compile import GrammarTokenizer, compile_grammar
from headrace.structured.grammar import Grammar
from headrace.structured.vocabulary import Vocabulary

_FREE = 40
"""With more tokens allowed than this, the text is free, and a draw may close it."""


class Walker:
    """A model that writes at random what a grammar allows."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.tokenizer = GrammarTokenizer(vocabulary)
        marks = (vocabulary.token_bytes[each].decode() for each in vocabulary.special_ids)
        self._marks = re.compile(
            "|".join(map(re.escape, sorted(filter(None, marks), key=len, reverse=True))) or "(?!)"
        )

    def walk(
        self,
        grammar: Grammar,
        seed: int,
        closers: Sequence[str],
        *,
        end: float = 0.5,
        max_tokens: int = 3000,
        after: str = "",
    ) -> str:
        """A text of the grammar, ended at the first place where a draw ends it.

        end: how often a draw does that. closers: texts that end what is free, each tried
        where it is allowed. after: how the text begins.
        """
        matcher = compile_grammar(grammar, self.tokenizer).matcher()
        draw = random.Random(seed)
        written = self.ids_of(after)
        assert matcher.consume_tokens(written), matcher.get_error()
        words = np.zeros(self.tokenizer.end_id // 32 + 1, np.uint32)
        while len(written) < max_tokens:
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            assert not matcher.is_error(), matcher.get_error()
            bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: self.tokenizer.end_id]
            allowed = np.flatnonzero(bits).tolist()
            if matcher.is_accepting() and (not allowed or draw.random() < end):
                break
            assert allowed, f"nothing may follow {self.text(written)!r}"
            chosen = [draw.choice(allowed)]
            if len(allowed) > _FREE and draw.random() < 0.4:
                for closer in draw.sample(closers, len(closers)):
                    ids = self.ids_of(closer)
                    if matcher.validate_tokens(ids) == len(ids):
                        chosen = ids
                        break
            assert matcher.consume_tokens(chosen), matcher.get_error()
            written += chosen
        return self.text(written)

    def ids_of(self, text: str) -> list[int]:
        """Of a text, with the marks in it that are control tokens."""
        ids: list[int] = []
        at = 0
        for mark in self._marks.finditer(text):
            ids += self.vocabulary.ids_of(text[at : mark.start()])
            ids.append(self.vocabulary.token_bytes.index(mark[0].encode()))
            at = mark.end()
        return [*ids, *self.vocabulary.ids_of(text[at:])]

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, special ones among them."""
        return b"".join(self.vocabulary.token_bytes[each] for each in token_ids).decode()


@cache
def walker_over_bytes(marks: tuple[str, ...] = ()) -> Walker:
    """One whose tokens are single bytes, and control tokens of these marks."""
    tokens = [bytes([each]) for each in range(256)]
    special = range(256, 256 + len(marks))
    return Walker(Vocabulary([*tokens, *(mark.encode() for mark in marks)], special, _bytes_of))


def special_of(walker: Walker) -> dict[str, int]:
    """The control tokens."""
    return {
        walker.vocabulary.token_bytes[each].decode(): each for each in walker.vocabulary.special_ids
    }


def _bytes_of(text: str) -> list[int]:
    return list(text.encode())
