"""What a GGUF file says of its tokenizer, its chat templates and its ends of turn."""

from __future__ import annotations

import numpy as np

from headrace.errors import CheckpointError, shown
from headrace.weights.gguf.values import Metadata
from headrace.weights.tokenizer.data import TokenizerData, end_ids

TOKENIZER_PREFIX = "tokenizer.ggml."
TEMPLATE_KEY = "tokenizer.chat_template"
NAME_KEY = "general.name"


def tokenizer_of_gguf(metadata: Metadata) -> TokenizerData:
    """The `tokenizer.ggml.*` entries; kind "none" where the file has no tokens.

    Raises CheckpointError where a value has the wrong type or an array not one entry per token.
    """
    model = metadata.scalar(f"{TOKENIZER_PREFIX}model")
    if f"{TOKENIZER_PREFIX}tokens" not in metadata or model in (None, "none", "no_vocab"):
        return TokenizerData("none")
    entries = metadata.strip_prefix(TOKENIZER_PREFIX)
    n_tokens = entries.length("tokens")
    for key, kinds in (("tokens", "U"), ("merges", "U"), ("scores", "f"), ("token_type", "iu")):
        if key not in entries:
            continue
        full_key = TOKENIZER_PREFIX + key
        if kinds == "U":
            right = entries.is_strings(key)
        else:
            value = entries[key]
            right = isinstance(value, np.ndarray) and value.dtype.kind in kinds
            if right and len(value) != n_tokens:
                raise CheckpointError(
                    f"{metadata.path}: metadata {full_key!r} has {len(value)} entries; "
                    f"one for each of the {n_tokens} tokens is required"
                )
        if not right:
            kind = {"U": "strings", "f": "floats", "iu": "integers"}[kinds]
            raise CheckpointError(
                f"{metadata.path}: metadata {full_key!r} must be an array of {kind}"
            )
    _check_scalars(metadata)
    name = metadata.get(NAME_KEY)
    return TokenizerData("gguf", gguf=entries, model_name=name if isinstance(name, str) else "")


def _check_scalars(metadata: Metadata) -> None:
    """Ids of special tokens are integers, and what is added to a text is said by a bool."""
    for key in metadata:
        if not key.startswith(TOKENIZER_PREFIX):
            continue
        kind: type
        if key.endswith("_token_id"):
            kind, name = int, "an integer"
        elif key.startswith(f"{TOKENIZER_PREFIX}add_"):
            kind, name = bool, "a bool"
        else:
            continue
        value = metadata.scalar(key)
        if type(value) is not kind:
            raise CheckpointError(
                f"{metadata.path}: metadata {shown(key)} is {shown(value)}; {name} is required"
            )


def templates_of_gguf(metadata: Metadata) -> dict[str, str]:
    """Chat templates by name; the one without a name is "default".

    Raises CheckpointError where one is not a string.
    """
    templates = {}
    for key in metadata:
        if key == TEMPLATE_KEY or key.startswith(f"{TEMPLATE_KEY}."):
            value = metadata.scalar(key)
            if not isinstance(value, str):
                raise CheckpointError(
                    f"{metadata.path}: metadata {shown(key)} is {shown(value)}; "
                    "a string is required"
                )
            templates[key.removeprefix(TEMPLATE_KEY).removeprefix(".") or "default"] = value
    return templates


def end_ids_of_gguf(metadata: Metadata, vocab_size: int) -> tuple[int, ...]:
    """Ids of eos, eot and eom inside the vocabulary, ascending."""
    return end_ids(metadata.strip_prefix(TOKENIZER_PREFIX), vocab_size)
