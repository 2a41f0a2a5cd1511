"""Scores of a SentencePiece-style vocabulary from the merges of its tokenizer.json.

SentencePiece joins the neighbours whose joined text has the best score; BPE joins those whose pair
has the lowest rank. The two agree exactly when every way of cutting a token in two that leaves
tokens is a merge, and the merges of one token have neighbouring ranks. This is how transformers
writes a SentencePiece model as BPE (but for a token that overlaps itself, cut in two ways). Merges
that are not so cannot be said in scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.errors import UnsupportedModelError
from headrace.weights.tokenizer.data import TokenKind
from headrace.weights.tokenizer.piece_cuts import check_pieces, cuts_of


def scores_of_merges(
    tokens: Sequence[str], types: Sequence[int], merges: Sequence[str]
) -> npt.NDArray[np.float32]:
    """float32[tokens]: 0 for the best token and one less for each next; worst + 1 less for others.

    Characters and other tokens that no merge makes come last; they are never joined to, so their
    score changes nothing. Raises UnsupportedModelError naming a token where merges and scores
    would tokenize differently, CheckpointError for tokens too long to be compared.
    """
    ranks: dict[str, int] = {}
    pairs: dict[str, set[int]] = {}
    previous = None
    for merge in merges:
        left, right = merge.split(" ")
        token = left + right
        if token != previous:
            if token in ranks:
                raise UnsupportedModelError(
                    f"merges of token {token!r} do not follow one another, so no score of it gives "
                    "the same order; this tokenizer cannot be written as SentencePiece"
                )
            ranks[token] = len(ranks)
        pairs.setdefault(token, set()).add(len(left))
        previous = token
    joinable = {
        token for token, kind in zip(tokens, types, strict=True) if kind == TokenKind.NORMAL
    }
    for token in ranks:
        if token not in joinable:
            raise UnsupportedModelError(f"merges make {token!r}, which is not a normal token")
    check_pieces(joinable)
    for token in joinable:
        cuts = set(cuts_of(token, joinable))
        if cuts - pairs.get(token, set()):
            cut = min(cuts - pairs.get(token, set()))
            raise UnsupportedModelError(
                f"token {token!r} could be joined of {token[:cut]!r} and {token[cut:]!r}, "
                "which is not a merge; this tokenizer cannot be written as SentencePiece"
            )
    worst = len(ranks)
    return -np.array([ranks.get(token, worst) for token in tokens], np.float32)
