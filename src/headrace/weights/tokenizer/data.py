"""What files say of their tokenizer, and the words of the formats for it.

One vocabulary entry has a kind, numbered as in `tokenizer.ggml.token_type`. `headrace.text` makes
tokenizers of this; here nothing is tokenized.

Source: gguf-py constants.py (token types), the tokenizers library (fields of tokenizer.json).
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal

import msgspec

from headrace.errors import CheckpointError
from headrace.weights.files.json_file import MAX_JSON_BYTES
from headrace.weights.files.small_file import read_small_file
from headrace.weights.gguf.values import Metadata
from headrace.weights.tokenizer.added_tokens import TokenFlags


class TokenKind(IntEnum):
    """Kinds of vocabulary entries. Control and unknown tokens are special: hidden in outputs, and
    made from text only where special tokens are parsed. User-defined ones are always recognised
    and printed; unused ones are padding."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL_KINDS = (TokenKind.UNKNOWN, TokenKind.CONTROL)

END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""Where a GGUF file names ends of text, turn and message, after `tokenizer.ggml.`."""


@dataclass(frozen=True)
class TokenizerData:
    """The tokenizer data of a checkpoint; `headrace.text` makes a tokenizer of it."""

    kind: Literal["tokenizer.json", "gguf", "none"]
    """"tokenizer.json": `json_path` is the file; "gguf": `gguf` has the entries."""
    json_path: Path | None = None
    gguf: Mapping[str, Any] = field(default_factory=dict)
    """The `tokenizer.ggml.*` entries with that prefix removed, arrays as lists or NumPy arrays."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """tokenizer_config.json (or {}): special token names, without chat templates."""
    model_name: str = ""
    """`general.name` of a GGUF file, by which the flags of its added tokens are known."""
    flags: Mapping[str, TokenFlags] | None = None
    """Of the added tokens, by their text; None where no file states any."""

    @property
    def num_tokens(self) -> int | None:
        """The highest id that is a token's, + 1; ids from there on are padding of the embedding.

        None without a tokenizer. GGUF files list the padding too, as unused tokens at the end. No
        string is decoded for GGUF; a tokenizer.json of 151k tokens takes 0.06 s.
        Raises CheckpointError for a damaged tokenizer.json, and where no id is a token's: there
        would be nothing to choose from.
        """
        if self.kind == "gguf":
            return _at_least_one(_count_gguf(self.gguf), "tokenizer.ggml.tokens")
        if self.kind == "tokenizer.json" and self.json_path is not None:
            return _at_least_one(_count_json(self.json_path), str(self.json_path))
        return None


def token_text(entry: object) -> str | None:
    """The text of a special token as tokenizer_config.json states it: a string, or an object."""
    if isinstance(entry, Mapping):
        entry = entry.get("content")
    return entry if isinstance(entry, str) and entry else None


def end_ids(gguf: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    """Ids of eos, eot and eom inside the vocabulary, ascending.

    gguf: entries without `tokenizer.ggml.`. Converters write 4294967295 (that is -1) for an id the
    model does not have.
    """
    ids = (gguf.get(key) for key in END_KEYS)
    return tuple(
        sorted(
            {
                token
                for token in ids
                if isinstance(token, int)
                and not isinstance(token, bool)
                and 0 <= token < vocab_size
            }
        )
    )


def _at_least_one(num_tokens: int, source: str) -> int:
    if num_tokens < 1:
        raise CheckpointError(f"{source}: no id is a token's; the vocabulary is damaged")
    return num_tokens


def _count_gguf(entries: Mapping[str, Any]) -> int:
    # Asking `Metadata` for the tokens themselves would decode all of them.
    lazy = entries.length("tokens") if isinstance(entries, Metadata) else None
    known: int = len(entries["tokens"]) if lazy is None else lazy
    kinds = entries.get("token_type")
    while kinds is not None and known and kinds[known - 1] == TokenKind.UNUSED:
        known -= 1
    return known


class _Added(msgspec.Struct):
    id: int


class _Vocabulary(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _TokenizerJson(msgspec.Struct):
    """The two places in tokenizer.json that give ids; the rest is skipped unread."""

    model: _Vocabulary
    added_tokens: list[_Added] = []


def _count_json(path: Path) -> int:
    try:
        raw = read_small_file(path, MAX_JSON_BYTES).removeprefix(codecs.BOM_UTF8)
        parsed = msgspec.json.decode(raw, type=_TokenizerJson)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read as a tokenizer: {error}") from error
    vocabulary = parsed.model.vocab
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    added = [token.id for token in parsed.added_tokens]
    highest: int = max([-1, *added, *ids])
    return 1 + highest
