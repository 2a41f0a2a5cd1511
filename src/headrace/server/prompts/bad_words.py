"""Texts that must not come out, as the sequences of ids that spell them.

A word at the beginning of a text and one after a space are different tokens, so each is cut both
ways, as vLLM does. (vLLM keeps the second only where it has as many tokens as the first; here it
always counts, or "bad" would keep a word out and let the same word after a space in.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.errors import RequestError, shown
from headrace.text.library import naming


class Encoder(Protocol):
    """The part of a tokenizer that bad words need."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text."""


def bad_word_ids(words: Sequence[str], tokenizer: Encoder) -> tuple[tuple[int, ...], ...]:
    """Every sequence once, in order; RequestError for a word that has no tokens."""
    sequences: dict[tuple[int, ...], None] = {}
    for index, word in enumerate(words):
        bare = word.lstrip()
        with naming(f"bad_words[{index}]"):
            ids, spaced = (
                tuple(tokenizer.encode(text, add_special_tokens=False)) if bare else ()
                for text in (bare, f" {bare}")
            )
        if not ids:
            raise RequestError(
                f"bad_words[{index}]: {shown(word)} has no tokens, so there is nothing to "
                "ban; omit it",
                param=f"bad_words[{index}]",
                code="invalid_value",
            )
        sequences[ids] = None
        sequences[spaced] = None
    return tuple(sequences)
