"""A SentencePiece `tokenizer.model` as the `tokenizer.ggml.*` entries of a GGUF file.

For folders of older models that hold no tokenizer.json. The file is a protobuf message whose few
fields needed here are read without a protobuf library: pieces with score and type (the same numbers
as GGUF's), the kind of model, ids of special tokens and two switches of the normalizer. What would
tokenize differently from SentencePiece's BPE with byte fallback is refused by name.

Source: sentencepiece_model.proto of google/sentencepiece (field numbers and defaults).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.files.small_file import read_small_file
from headrace.weights.tokenizer.added_tokens import TokenFlags
from headrace.weights.tokenizer.data import TokenKind, token_text

MAX_MODEL_BYTES = 64 * 2**20
"""Gemma's, the largest known, has 4.7 MB."""

_MAX_VARINT_BYTES = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# Fields of ModelProto, SentencePiece, TrainerSpec and NormalizerSpec.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _UNK_ID, _BOS_ID, _EOS_ID, _PAD_ID = 3, 40, 41, 42, 43
_CHARSMAP, _DUMMY_PREFIX, _EXTRA_SPACES = 2, 3, 4
_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}

_ID_FIELDS = {
    "unknown_token_id": (_UNK_ID, 0),
    "bos_token_id": (_BOS_ID, 1),
    "eos_token_id": (_EOS_ID, 2),
    "padding_token_id": (_PAD_ID, -1),
}


def sentencepiece_entries(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of `tokenizer.ggml.*`, without that prefix, of the SentencePiece model in `path`.

    config: tokenizer_config.json; its added_tokens_decoder adds tokens behind the pieces, and it
    says what begins and ends a text. Raises CheckpointError for a damaged file,
    UnsupportedModelError for another kind of model.
    """
    data = read_small_file(path, MAX_MODEL_BYTES)
    if _is_ranks(data):
        raise UnsupportedModelError(
            f"{path}: a list of tiktoken ranks, which does not say how text is split; "
            "put the model's tokenizer.json beside it"
        )
    try:
        return _entries(data, path, config)
    except (IndexError, ValueError, struct.error) as error:
        raise CheckpointError(f"{path}: not a SentencePiece model: {error}") from error


def stated_flags(config: Mapping[str, Any]) -> dict[str, TokenFlags] | None:
    """Flags of added tokens that tokenizer_config.json states, by text; None where it has none."""
    decoder = config.get("added_tokens_decoder")
    entries = decoder.values() if isinstance(decoder, Mapping) else ()
    flags = {
        text: TokenFlags.of(entry)
        for entry in entries
        if isinstance(entry, Mapping) and (text := token_text(entry))
    }
    return flags or None


def _is_ranks(data: bytes) -> bool:
    """Lines of base64, a space and a number, as tiktoken has them."""
    token, _, rank = data[:200].split(b"\n", 1)[0].partition(b" ")
    return rank.strip().isdigit() and bool(token)


def _entries(data: bytes, path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    tokens: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for field, value in _fields(data):
        if field == _PIECES:
            piece = dict(_fields(_message(value)))
            tokens.append(_message(piece.get(_TEXT, b"")).decode("utf-8"))
            scores.append(float(piece.get(_SCORE, 0.0)))
            kinds.append(int(piece.get(_KIND, TokenKind.NORMAL)))
        elif field == _TRAINER:
            trainer = dict(_fields(_message(value)))
        elif field == _NORMALIZER:
            normalizer = dict(_fields(_message(value)))
    if not tokens:
        raise ValueError("it has no pieces")
    _check_kind(path, trainer, normalizer, kinds)
    entries: dict[str, Any] = {"model": "llama", "pre": "default"}
    for key, (field, default) in _ID_FIELDS.items():
        token_id = _signed(trainer.get(field, default))
        if 0 <= token_id < len(tokens):
            entries[key] = token_id
    _add_tokens(config, tokens, scores, kinds)
    ids = {token: index for index, token in enumerate(tokens)}
    for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
        text = token_text(config.get(key))
        name = {"unk_token": "unknown_token", "pad_token": "padding_token"}.get(key, key)
        if text in ids:
            entries[f"{name}_id"] = ids[text]
    return entries | {
        "tokens": tokens,
        "scores": np.array(scores, np.float32),
        "token_type": np.array(kinds, np.int32),
        "add_space_prefix": bool(normalizer.get(_DUMMY_PREFIX, 1)),
        # transformers: with False the space goes before the whole text only, not before what
        # follows a special token.
        "legacy": config.get("legacy") is not False,
        # What transformers' Llama classes do where the config is silent.
        "add_bos_token": config.get("add_bos_token") is not False,
        "add_eos_token": config.get("add_eos_token") is True,
    }


def _check_kind(
    path: Path, trainer: Mapping[int, Any], normalizer: Mapping[int, Any], kinds: list[int]
) -> None:
    model_type = trainer.get(_MODEL_TYPE, 1)
    if model_type != 2:
        name = _MODEL_TYPES.get(model_type, model_type)
        raise UnsupportedModelError(
            f"{path}: a SentencePiece model of type {name!r}; only 'bpe' is implemented. "
            "Use a folder with tokenizer.json instead."
        )
    if normalizer.get(_CHARSMAP):
        raise UnsupportedModelError(
            f"{path}: the SentencePiece model normalizes text by a character map, which is not "
            "implemented. Use a folder with tokenizer.json instead."
        )
    if normalizer.get(_EXTRA_SPACES, 1):
        raise UnsupportedModelError(
            f"{path}: the SentencePiece model removes extra spaces, which is not implemented. "
            "Use a folder with tokenizer.json instead."
        )
    if kinds.count(TokenKind.BYTE) != 256:
        raise UnsupportedModelError(
            f"{path}: the SentencePiece model has {kinds.count(TokenKind.BYTE)} byte pieces; "
            "256 are required, so that every text can be written"
        )


def _add_tokens(
    config: Mapping[str, Any], tokens: list[str], scores: list[float], kinds: list[int]
) -> None:
    """Tokens of added_tokens_decoder that lie behind the pieces; ids must follow one another."""
    decoder = config.get("added_tokens_decoder")
    entries = decoder.items() if isinstance(decoder, Mapping) else ()
    added = {int(key): entry for key, entry in entries if str(key).isdecimal()}
    for token_id in sorted(added):
        text = token_text(added[token_id])
        if text is None:
            raise ValueError(f"added_tokens_decoder[{token_id}] has no content")
        special = isinstance(added[token_id], Mapping) and added[token_id].get("special")
        kind = TokenKind.CONTROL if special else TokenKind.USER_DEFINED
        if token_id < len(tokens):
            if tokens[token_id] == text and kinds[token_id] == TokenKind.NORMAL:
                kinds[token_id] = kind
            continue
        if token_id != len(tokens):
            raise ValueError(
                f"added_tokens_decoder has id {token_id} where {len(tokens)} is the next one"
            )
        tokens.append(text)
        scores.append(0.0)
        kinds.append(kind)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values of one protobuf message: int, float (fixed32) or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield field, value
        elif wire == _FIXED32:
            yield field, struct.unpack_from("<f", data, at)[0]
            at += 4
        elif wire == _FIXED64:
            yield field, struct.unpack_from("<q", data, at)[0]
            at += 8
        elif wire == _BYTES:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise ValueError(f"field {field} claims {size} bytes, {len(data) - at} are left")
            yield field, data[at : at + size]
            at += size
        else:
            raise ValueError(f"field {field} has wire type {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a number is longer than ten bytes")


def _signed(value: int) -> int:
    """An int32 as protobuf writes negative ones, in 64 bits."""
    return value - 2**64 if value >= 2**63 else value


def _message(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a message or text is a number")
    return value
