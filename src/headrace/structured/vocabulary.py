"""What a grammar needs to know of a model's tokens: their bytes, and how the model cuts a text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

_NOT_TEXT = "\x02"
"""Before a text it takes what a tokenizer puts before every text, and merges with nothing."""

_MOST_BEFORE = 4
"""Ids that a tokenizer writes for that at most: a space, and the character's three bytes."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model, as grammars see them."""

    token_bytes: Sequence[bytes]
    """By id; b"" for an id without text, which no grammar allows."""
    special_ids: Collection[int]
    """Ids whose bytes are a name and not text: no text of a grammar is spelled with them."""
    encode: Callable[[str], list[int]]
    """The ids by which the model's tokenizer writes a text. Text that a grammar forces is written
    so, because the model has seen it in no other way."""

    def ids_of(self, text: str) -> list[int]:
        """The ids of a text that continues another, with exactly its bytes; never an error.

        Those of the model's tokenizer, or the longest matches where these have other bytes.
        """
        wanted = text.encode("utf-8", "replace")
        for before in ("", _NOT_TEXT):
            try:
                ids = self.encode(before + text)
            except Exception:  # in a callback of Rust code it would be a panic
                break
            for start in range(min(_MOST_BEFORE, len(ids)) + 1):
                if b"".join(map(self.token_bytes.__getitem__, ids[start:])) == wanted:
                    return ids[start:]
        return self._longest_matches(wanted)

    def _longest_matches(self, data: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(data):
            lengths = range(min(self._longest, len(data) - at), 0, -1)
            length = next((each for each in lengths if data[at : at + each] in self._ids), 0)
            if not length:
                return ids  # no token has this byte: the beginning is all that can be written
            ids.append(self._ids[data[at : at + length]])
            at += length
        return ids

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        special = frozenset(self.special_ids)
        return {
            each: token_id
            for token_id, each in enumerate(self.token_bytes)
            if each and token_id not in special
        }

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids), default=0)
