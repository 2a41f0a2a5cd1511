"""How much longer a stranger's normalizer may make a text.

The library keeps 17 bytes of memory for each byte of normalized text and aborts the process where
there is none left, so a chain of replacements is a bomb. `weights.tokenizer.tokenizer_json` bounds
what a file can do; here the texts of a tokenizer with a high bound are measured piece by piece
before they are tokenized.
"""

from __future__ import annotations

from typing import Any

from headrace.text.library import whole_text

ORDINARY_GROWTH = 16
"""Times a text may get longer; normalizers that cannot do more are not measured."""

# Normalized text that exists at once while a text is measured, at most.
_PIECE_BYTES = 1 << 20
# Short texts may grow more: what a normalizer puts before each.
_FREE_CHARS = 4096


def check_growth(normalizer: Any, text: str, growth: int) -> None:
    """Raise ValueError, as the library would, where the normalizer makes the text more than
    ORDINARY_GROWTH times longer. growth: what it can do at most, which bounds the memory this
    takes."""
    most_chars = ORDINARY_GROWTH * len(text) + _FREE_CHARS
    piece_chars = max(1, _PIECE_BYTES // growth)
    whole = whole_text(text)
    num_chars = 0
    for start in range(0, len(whole), piece_chars):
        num_chars += len(normalizer.normalize_str(whole[start : start + piece_chars]))
        if num_chars > most_chars:
            raise ValueError(f"its normalizer makes it more than {ORDINARY_GROWTH} times longer")
