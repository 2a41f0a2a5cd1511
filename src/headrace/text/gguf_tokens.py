"""The arrays of `tokenizer.ggml.*`, checked before a tokenizer is built of them.

A vocabulary that is damaged gives a model that loads, runs and is wrong: scores that are no numbers
merge in an arbitrary order, of two equal tokens one is never used, and a type nobody knows may be a
control token that is printed. So each of these stops the load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.errors import CheckpointError, shown
from headrace.weights.gguf.values import Metadata
from headrace.weights.tokenizer.data import SPECIAL_KINDS, TokenKind
from headrace.weights.tokenizer.piece_cuts import MAX_PIECE_CHARS

# Written by converters for "none"; a key may also hold it for ids the model does not have.
_NO_TOKEN = 0xFFFFFFFF

LITERAL_KINDS = frozenset({*SPECIAL_KINDS, TokenKind.USER_DEFINED})
"""Kinds of tokens that are found in a text as they are written."""
_PLAIN_KINDS = (TokenKind.NORMAL, TokenKind.BYTE, TokenKind.USER_DEFINED)
_KNOWN_KINDS = frozenset(TokenKind)
_FETCH = "the file is damaged: fetch or convert it again"


def strings(gguf: Mapping[str, Any], key: str) -> list[str]:
    """The strings under `key`; raises CheckpointError where there are none."""
    values = gguf.get(key)
    if values is None:
        raise CheckpointError(
            f"tokenizer.ggml.{key} is missing: this file has no complete tokenizer. Convert "
            "the model again, or use a folder with tokenizer.json."
        )
    return values if isinstance(values, list) else [str(value) for value in values]


def merges_of(gguf: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The pieces that each merge joins: two, or one where an entry has no space. Raises
    CheckpointError where there are no merges."""
    if isinstance(gguf, Metadata) and "merges" in gguf:
        return gguf.pairs("merges")
    return [tuple(merge.split(" ", 1)) for merge in strings(gguf, "merges")]


def token_id_of(gguf: Mapping[str, Any], key: str, count: int) -> int | None:
    """The id under `key`, None where it is absent or stands for none; CheckpointError for one
    outside the `count` tokens."""
    value = gguf.get(key)
    if value is None or int(value) == _NO_TOKEN:
        return None
    if not 0 <= int(value) < count:
        raise CheckpointError(
            f"tokenizer.ggml.{key} is {int(value)}, outside the vocabulary of {count} tokens"
        )
    return int(value)


def kinds_of(
    gguf: Mapping[str, Any], count: int, control: Iterable[int | None], unknown: int | None
) -> list[int]:
    """Kind of every token, all of them known ones.

    Ends and beginnings of text (`control`) are control tokens whatever the file says: several
    converters wrote them as user-defined, and they would be printed.
    """
    stated = gguf.get("token_type")
    kinds = [int(TokenKind.NORMAL)] * count if stated is None else _numbers(stated)
    if len(kinds) != count:
        raise CheckpointError(
            f"tokenizer.ggml.token_type has {len(kinds)} entries for {count} tokens; {_FETCH}"
        )
    if strange := set(kinds) - _KNOWN_KINDS:
        index = next(index for index, kind in enumerate(kinds) if kind in strange)
        raise CheckpointError(
            f"tokenizer.ggml.token_type is {kinds[index]} for token {index}; known types are "
            f"{min(_KNOWN_KINDS)} to {max(_KNOWN_KINDS)}. {_FETCH.capitalize()}"
        )
    if stated is None and unknown is not None:
        kinds[unknown] = TokenKind.UNKNOWN
    for token_id in control:
        if token_id is not None and token_id < count and kinds[token_id] not in SPECIAL_KINDS:
            kinds[token_id] = TokenKind.CONTROL
    return kinds


def check_tokens(tokens: Sequence[str], kinds: Sequence[int], ids: Mapping[str, int]) -> None:
    """Raise CheckpointError where no text can be made of the tokens, two of them are equal, or one
    that is looked for in texts is too long for that.

    ids: of the tokens, the last of equal ones. Empty tokens stand for nothing, as in llama.cpp;
    several published files have some.
    """
    if not any(token and kind in _PLAIN_KINDS for token, kind in zip(tokens, kinds, strict=True)):
        raise CheckpointError(
            f"tokenizer.ggml.tokens: none of the {len(tokens)} tokens is one that text can be made "
            f"of (not empty, and normal, user-defined or a byte); {_FETCH}"
        )
    if len(ids) < len(tokens):
        _refuse_equal(tokens)
    if max(map(len, tokens)) <= MAX_PIECE_CHARS:
        return
    for index, token in enumerate(tokens):
        if len(token) > MAX_PIECE_CHARS and kinds[index] in LITERAL_KINDS:
            raise CheckpointError(
                f"tokenizer.ggml.tokens: token {index} has {len(token)} characters, "
                f"{shown(token)}; control and user-defined tokens have at most {MAX_PIECE_CHARS}. "
                f"{_FETCH.capitalize()}"
            )


def _refuse_equal(tokens: Sequence[str]) -> None:
    ids: dict[str, int] = {}
    for index, token in enumerate(tokens):
        first = ids.setdefault(token, index)
        if first != index and token:
            raise CheckpointError(
                f"tokenizer.ggml.tokens: {first} and {index} are the same token, {shown(token)}; "
                f"every token must be there once. {_FETCH.capitalize()}"
            )


def scores_of(gguf: Mapping[str, Any], tokens: Sequence[str], kinds: Sequence[int]) -> list[float]:
    """The score of every token; those of normal ones, by which pieces are merged, are finite."""
    stated = gguf.get("scores")
    if stated is None or len(stated) != len(tokens):
        raise CheckpointError(
            f"tokenizer.ggml.scores has {0 if stated is None else len(stated)} entries for "
            f"{len(tokens)} tokens; without scores the order of merging is unknown"
        )
    scores = _numbers(stated)
    for index, score in enumerate(scores):
        if kinds[index] == TokenKind.NORMAL and not math.isfinite(score):
            raise CheckpointError(
                f"tokenizer.ggml.scores is {score} for token {index}, {shown(tokens[index])}; a "
                f"finite number is required, as it orders the merging of pieces. "
                f"{_FETCH.capitalize()}"
            )
    return scores


def _numbers(values: Any) -> list[Any]:
    """A list of Python numbers from a list or a NumPy array."""
    numbers: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    return numbers
