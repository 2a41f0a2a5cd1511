"""How the strings of a vocabulary spell bytes, and back.

Two spellings exist. "bytes": every character stands for one byte through the printable alphabet
GPT-2 introduced (bytes 33-126, 161-172 and 174-255 stand for themselves, the other 68 follow from
U+0100 in ascending order). "sentencepiece": text with U+2581 for a space, and "<0xNN>" for a byte.
Knows nothing of files or of merging.
"""

from __future__ import annotations

import re
from typing import Literal

Spelling = Literal["bytes", "sentencepiece"]

SPACE_MARK = "\u2581"

_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_HIDDEN = tuple(byte for byte in range(256) if byte not in set(_PRINTABLE))

BYTE_OF_CHAR: dict[str, int] = {
    **{chr(byte): byte for byte in _PRINTABLE},
    **{chr(256 + index): byte for index, byte in enumerate(_HIDDEN)},
}

CHAR_OF_BYTE: dict[int, str] = {byte: char for char, byte in BYTE_OF_CHAR.items()}

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def bytes_of_byte_level(piece: str) -> bytes:
    """Bytes of a byte-level piece; a piece with a character outside the alphabet is plain text."""
    try:
        return bytes(map(BYTE_OF_CHAR.__getitem__, piece))
    except KeyError:
        return piece.encode("utf-8", "replace")


def byte_of_piece(piece: str) -> int | None:
    """The byte a SentencePiece byte piece ("<0x0A>") stands for; None for any other piece."""
    match = _BYTE_PIECE.fullmatch(piece)
    return int(match.group(1), 16) if match else None


def bytes_of_sentencepiece(piece: str) -> bytes:
    """Bytes of a SentencePiece piece: one byte for "<0xNN>", else its text with real spaces."""
    byte = byte_of_piece(piece)
    if byte is not None:
        return bytes((byte,))
    return piece.replace(SPACE_MARK, " ").encode("utf-8", "replace")
