"""The most bytes of text one token can stand for: what tells a text too long without encoding it.

A bound exists only where every byte of a text ends up in some token: nothing is dropped, stripped
or replaced by one "unknown" token. Where that is not certain there is no bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.text.backend_state import steps
from headrace.text.byte_alphabet import BYTE_OF_CHAR
from headrace.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

NFC_SHRINKS_BYTES = 4
"""NFC makes a UTF-8 text at most 3.5 times shorter: U+1FBE U+0308 U+0301 (7 bytes) is U+0390 (2).

A test goes through every character of Unicode.
"""

_KEEPING_SPLITS = ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def most_token_bytes(vocabulary: Vocabulary) -> int | None:
    """No token stands for more bytes (UTF-8) of a text than this; None where nothing is certain.

    But for the white space that added tokens take with them, however much, where they have flags.
    """
    backend = vocabulary.backend
    added = backend.get_added_tokens_decoder().values()
    pieces = backend.get_vocab(with_added_tokens=False)
    shrinks = _normalizer_shrinks(backend.normalizer)
    if shrinks is None or not _every_byte_has_a_token(backend, vocabulary.spelling, pieces):
        return None
    # A character of a byte-level piece is a byte.
    by_chars = vocabulary.spelling == "bytes"
    longest = max(len(piece) if by_chars else len(piece.encode()) for piece in pieces)
    longest_added = max((len(token.content.encode()) for token in added), default=0)
    return max(longest, longest_added) * shrinks


def _every_byte_has_a_token(backend: Backend, spelling: str, pieces: dict[str, int]) -> bool:
    from tokenizers import models

    model = backend.model
    if not isinstance(model, models.BPE):
        return False
    splits = steps(backend.pre_tokenizer, "pretokenizers")
    kinds = {step["type"] for step in splits}
    keeps = all(
        step["type"] in ("ByteLevel", "Metaspace", "Digits")
        or (step["type"] == "Split" and step.get("behavior") in _KEEPING_SPLITS)
        for step in splits
    )
    if not keeps:
        return False
    if spelling == "bytes":
        return "ByteLevel" in kinds and all(char in pieces for char in BYTE_OF_CHAR)
    if spelling == "sentencepiece":
        tokens = (f"<0x{byte:02X}>" for byte in range(256))
        return bool(model.byte_fallback) and all(token in pieces for token in tokens)
    return False


def _normalizer_shrinks(normalizer: Any) -> int | None:
    """How many times shorter, in bytes, a normalizer can make a text; None for not known."""
    factor = 1
    for step in steps(normalizer, "normalizers"):
        if step["type"] == "NFC":
            factor *= NFC_SHRINKS_BYTES
        elif step["type"] == "Replace":
            pattern = step["pattern"].get("String")
            if pattern is None or len(step["content"].encode()) < len(pattern.encode()):
                return None
        elif step["type"] != "Prepend":
            return None
    return factor
