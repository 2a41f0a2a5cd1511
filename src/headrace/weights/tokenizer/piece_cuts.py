"""Where the pieces of a SentencePiece vocabulary can be cut in two other pieces.

A SentencePiece model states scores of pieces and no merges: every cut of a piece in two pieces is
one. Looking at every place of every piece takes the square of its length, so a vocabulary from a
stranger's file is bounded first. The bounds are far above what trainers make: a piece has 16
characters at most unless SentencePiece is told otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from headrace.errors import CheckpointError, shown

MAX_PIECE_CHARS = 1024
MAX_TOTAL_CHARS = 2**23


def check_pieces(pieces: Collection[str]) -> None:
    """Raise CheckpointError for a piece, or pieces together, too long to be cut at every place."""
    longest = max(pieces, key=len, default="")
    if len(longest) > MAX_PIECE_CHARS:
        raise CheckpointError(
            f"the tokenizer has a token of {len(longest)} characters, {shown(longest)}; at most "
            f"{MAX_PIECE_CHARS} are allowed, so the file is damaged or was made to stall its reader"
        )
    total = sum(map(len, pieces))
    if total > MAX_TOTAL_CHARS:
        raise CheckpointError(
            f"the tokenizer's tokens have {total} characters together; at most {MAX_TOTAL_CHARS} "
            "are allowed, so the file is damaged or was made to stall its reader"
        )


def cuts_of(piece: str, pieces: Container[str]) -> list[int]:
    """Lengths of the left part of every cut of `piece` in two of `pieces`, the longest first."""
    return [
        cut
        for cut in range(len(piece) - 1, 0, -1)
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
