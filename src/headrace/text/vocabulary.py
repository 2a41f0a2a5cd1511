"""What a tokenizer is made of once its file has been read; the builders give it, Tokenizer uses it.

Special tokens are hidden when special tokens are skipped, and made from text only where special
tokens are parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.text.byte_alphabet import Spelling

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


@dataclass(frozen=True)
class Vocabulary:
    """A built tokenizer's parts."""

    backend: Backend
    """The `tokenizers` object, truncation and padding off, all added tokens registered."""
    spelling: Spelling | str
    """How pieces spell bytes; a string that is not a Spelling names a decoder for which no bytes
    are known, so the tokenizer can encode and not decode."""
    literal: Mapping[int, str]
    """Text of the tokens that are spelled as they are printed (control, user-defined)."""
    special_ids: frozenset[int]
    """Ids hidden when special tokens are skipped."""
    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    """With `prefix_ids`: what `add_special_tokens` puts before and after a text."""
    strips_first_space: bool
    """The first space of a whole decoded text is not part of it."""
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    growth: int = 1
    """How many times longer, in bytes, the backend's normalizer can make a text at most; 1 where it
    is one of ours."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Special tokens by role ("bos_token", "eos_token", "pad_token", ...), as text."""

    def piece(self, token_id: int) -> str | None:
        """Vocabulary string of an id, None where the id does not exist. The backend's own: a list
        of them would hold the vocabulary twice."""
        # The library's ids have 32 bits.
        return self.backend.id_to_token(token_id) if 0 <= token_id < 2**32 else None
