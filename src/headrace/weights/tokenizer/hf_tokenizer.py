"""A tokenizer.json as the `tokenizer.ggml.*` arrays of a GGUF file.

GGUF has no room for what tokenizer.json can say: it names a pre-tokenizer instead of carrying one,
and knows neither normalizers nor flags of added tokens (readers know those of some families by
their tokens: `added_tokens`). So what is recognised is written, what would tokenize differently is
refused by name, and what is lost without doing so is noted.

Sources: the tokenizers library (fields of tokenizer.json), gguf-py vocab.py and constants.py (token
types), llama.cpp llama-vocab.cpp (pre-tokenizer names and their expressions).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.tokenizer.added_tokens import NO_FLAGS, TokenFlags, flag_rule
from headrace.weights.tokenizer.bpe_scores import scores_of_merges
from headrace.weights.tokenizer.data import END_KEYS, TokenKind, token_text
from headrace.weights.tokenizer.pretokenizers import (
    DIGIT_PATTERN,
    GPT2_PATTERN,
    PRETOKENIZERS,
    name_of,
)

SPACE = "▁"

_SPECIAL_NAMES = {
    "bos_token": "bos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
    "mask_token": "mask_token_id",
}


@dataclass(frozen=True)
class TokenizerArrays:
    """The tokenizer entries of a GGUF file."""

    entries: dict[str, Any]
    """`tokenizer.ggml.*` without that prefix."""
    notes: tuple[str, ...]
    """What the file could not express."""


def tokenizer_arrays(
    data: Mapping[str, Any],
    config: Mapping[str, Any],
    vocab_size: int,
    eos_token_ids: tuple[int, ...],
    pre: str | None = None,
) -> TokenizerArrays:
    """GGUF arrays for the contents of tokenizer.json (`data`) and tokenizer_config.json (`config`).

    vocab_size: rows of the embedding; ids without a token become unused ones. pre: the name of the
    pre-tokenizer where it is not one of GPT-2's, Qwen2's and Llama 3's.
    Raises UnsupportedModelError naming a part that GGUF cannot say, CheckpointError for a damaged
    file.
    """
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        raise UnsupportedModelError(
            f"tokenizer model is {reprlib.repr(kind)}; only BPE can be written to GGUF"
        )
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(key):
            raise UnsupportedModelError(f"tokenizer model.{key} is {model[key]!r}; GGUF has none")
    if not all(isinstance(entry, dict) for entry in data.get("added_tokens") or []):
        raise CheckpointError("tokenizer.json: added_tokens is not a list of objects")
    notes: list[str] = []
    byte_level = _is_byte_level(data)
    tokens, types = _tokens(data, model, vocab_size, byte_level)
    merges = _merges(model)
    entries: dict[str, Any] = {"model": "gpt2" if byte_level else "llama"}
    if byte_level:
        entries["pre"] = pre or _pre_name(data, model)
        _note_normalizer(data, notes)
    else:
        entries["pre"] = pre or "default"
    entries["tokens"] = tokens
    if byte_level:
        # Readers require the key of this model; an array tells its type even when it is empty.
        entries["merges"] = np.array(merges, np.str_)
    else:
        entries["scores"] = scores_of_merges(tokens, types, merges)
        entries["add_space_prefix"] = _adds_space(data)
        entries["remove_extra_whitespaces"] = False
    entries["token_type"] = np.array(types, np.int32)
    ids = {token: index for index, token in enumerate(tokens)}
    _special_ids(entries, config, ids, eos_token_ids, notes)
    _added_around(data, entries, ids)
    _note_flags(data, entries, notes)
    return TokenizerArrays(entries, tuple(notes))


def _steps(part: object, key: str) -> list[Mapping[str, Any]]:
    """A normalizer, pre-tokenizer or post-processor as the list of steps it consists of."""
    if part is None:
        return []
    if not isinstance(part, dict):
        raise CheckpointError(f"tokenizer.json: {reprlib.repr(part)} is not an object")
    if part.get("type") == "Sequence":
        return [step for inner in part.get(key, []) for step in _steps(inner, key)]
    return [part]


def _is_byte_level(data: Mapping[str, Any]) -> bool:
    steps = _steps(data.get("pre_tokenizer"), "pretokenizers")
    return any(step.get("type") == "ByteLevel" for step in steps)


def _pre_name(data: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    steps = _steps(data.get("pre_tokenizer"), "pretokenizers")
    patterns = tuple(pattern for step in steps if (pattern := _pattern(step)) != "")
    ignore_merges = bool(model.get("ignore_merges"))
    # To bytes first would split bytes.
    in_order = [step.get("type") == "ByteLevel" for step in steps].index(True) == len(steps) - 1
    name = name_of(patterns, ignore_merges) if in_order else None
    if name is None:
        raise UnsupportedModelError(
            f"the pre-tokenizer {reprlib.repr(data.get('pre_tokenizer'))} with ignore_merges "
            f"{ignore_merges} has no known name in GGUF ({', '.join(PRETOKENIZERS)}); "
            "if GGUF readers know it under another name, give that as pre"
        )
    return name


def _pattern(step: Mapping[str, Any]) -> str | None:
    """The expression one step splits by; "" where it does not split, None for another kind."""
    kind = step.get("type")
    if kind == "ByteLevel" and not step.get("add_prefix_space", True):
        return GPT2_PATTERN if step.get("use_regex", True) else ""
    if kind == "Digits" and step.get("individual_digits"):
        return DIGIT_PATTERN
    pattern = step.get("pattern")
    isolated = step.get("behavior") == "Isolated" and not step.get("invert")
    if kind == "Split" and isolated and isinstance(pattern, dict):
        return pattern.get("Regex")
    return None


def _note_normalizer(data: Mapping[str, Any], notes: list[str]) -> None:
    steps = _steps(data.get("normalizer"), "normalizers")
    kinds = [step.get("type") for step in steps]
    if kinds == ["NFC"]:
        notes.append("the NFC normalizer cannot be stated in GGUF: text must come normalized")
    elif kinds:
        raise UnsupportedModelError(f"tokenizer normalizer {kinds} cannot be stated in GGUF")


def _adds_space(data: Mapping[str, Any]) -> bool:
    """Whether a space is put before the text: three ways of saying SentencePiece's rule."""
    normalizers = [
        (step.get("type"), step.get("prepend") or (step.get("pattern"), step.get("content")))
        for step in _steps(data.get("normalizer"), "normalizers")
    ]
    steps = _steps(data.get("pre_tokenizer"), "pretokenizers")
    replace = ("Replace", ({"String": " "}, SPACE))
    if not steps and normalizers == [("Prepend", SPACE), replace]:
        return True
    if not steps and normalizers == [replace]:
        return False
    if not normalizers and len(steps) == 1 and steps[0].get("type") == "Metaspace":
        scheme = steps[0].get("prepend_scheme", "always")
        whole = not steps[0].get("split", True) and steps[0].get("replacement") == SPACE
        if whole and scheme in ("always", "first", "never"):
            return bool(scheme != "never")
    raise UnsupportedModelError(
        f"normalizer {reprlib.repr(data.get('normalizer'))} with pre-tokenizer "
        f"{reprlib.repr(data.get('pre_tokenizer'))} is neither byte-level nor SentencePiece's rule "
        f"(spaces become {SPACE!r}, perhaps one put before the text)"
    )


def _tokens(
    data: Mapping[str, Any], model: Mapping[str, Any], vocab_size: int, byte_level: bool
) -> tuple[list[str], list[TokenKind]]:
    """Text and type of every id; [PAD<id>] of type TokenKind.UNUSED where there is none."""
    vocab = model.get("vocab")
    if not isinstance(vocab, dict):
        raise CheckpointError("tokenizer.json: model.vocab is not an object")
    if not byte_level and not model.get("byte_fallback"):
        raise UnsupportedModelError(
            "a BPE tokenizer that is neither byte-level nor has byte_fallback cannot be written"
        )
    tokens = [f"[PAD{index}]" for index in range(vocab_size)]
    types = [TokenKind.UNUSED] * vocab_size
    unknown = model.get("unk_token")
    entries = [(index, text, _type_of(text, byte_level, unknown)) for text, index in vocab.items()]
    for added in data.get("added_tokens") or []:
        kind = TokenKind.CONTROL if added.get("special") else TokenKind.USER_DEFINED
        if not byte_level and added.get("content") == unknown:
            kind = TokenKind.UNKNOWN
        entries.append((added.get("id"), added.get("content"), kind))
    for index, text, kind in entries:
        if not isinstance(index, int) or not 0 <= index < vocab_size or not isinstance(text, str):
            raise CheckpointError(
                f"tokenizer.json: token {text!r} has id {index!r}; ids below vocab_size "
                f"{vocab_size} are required"
            )
        tokens[index], types[index] = text, kind
    return tokens, types


def _type_of(text: str, byte_level: bool, unknown: object) -> TokenKind:
    if byte_level:
        return TokenKind.NORMAL
    if text == unknown:
        return TokenKind.UNKNOWN
    is_byte = len(text) == 6 and text.startswith("<0x") and text.endswith(">")
    return TokenKind.BYTE if is_byte else TokenKind.NORMAL


def _merges(model: Mapping[str, Any]) -> list[str]:
    """Merges as "left right"; tokenizer.json has them so, or as pairs."""
    merges = []
    for entry in model.get("merges") or []:
        pair = entry.split(" ") if isinstance(entry, str) else entry
        parts = pair if isinstance(pair, list) else []
        if len(parts) != 2 or not all(isinstance(p, str) and p and " " not in p for p in parts):
            raise CheckpointError(f"tokenizer.json: merge {entry!r} is not two texts without space")
        merges.append(" ".join(parts))
    return merges


def _special_ids(
    entries: dict[str, Any],
    config: Mapping[str, Any],
    ids: Mapping[str, int],
    eos_token_ids: tuple[int, ...],
    notes: list[str],
) -> None:
    for name, key in _SPECIAL_NAMES.items():
        text = token_text(config.get(name))
        if text is not None and text in ids:
            entries[key] = ids[text]
    # The tokenizer's own eos is the first; GGUF has three places for ends of turn.
    first = ids.get(token_text(config.get("eos_token")) or "")
    ends = sorted(eos_token_ids, key=lambda token: (token != first, token))
    if not ends and first is not None:
        ends = [first]
    entries.update(zip(END_KEYS, ends, strict=False))
    if len(ends) > len(END_KEYS):
        notes.append(f"eos ids {ends[len(END_KEYS) :]} have no place in GGUF (it has three)")


def _added_around(data: Mapping[str, Any], entries: dict[str, Any], ids: Mapping[str, int]) -> None:
    """add_bos_token and add_eos_token from the post-processor."""
    before: list[str] = []
    after: list[str] = []
    for step in _steps(data.get("post_processor"), "processors"):
        if step.get("type") == "ByteLevel":
            continue
        if step.get("type") != "TemplateProcessing":
            raise UnsupportedModelError(
                f"tokenizer post-processor {step.get('type')!r} cannot be stated in GGUF"
            )
        side = before
        for part in step.get("single") or []:
            special = part.get("SpecialToken") if isinstance(part, dict) else None
            if isinstance(special, dict):
                side.append(str(special.get("id")))
            else:
                side = after
    for what, texts, key in (("bos", before, "bos_token_id"), ("eos", after, "eos_token_id")):
        # A folder without tokenizer_config.json names its first token only here.
        if len(texts) == 1 and texts[0] in ids:
            entries.setdefault(key, ids[texts[0]])
        if texts and (len(texts) > 1 or ids.get(texts[0]) != entries.get(key)):
            raise UnsupportedModelError(
                f"the tokenizer puts {texts} around a text; GGUF can state only the {what} token"
            )
        entries[f"add_{what}_token"] = bool(texts)


def _note_flags(data: Mapping[str, Any], entries: Mapping[str, Any], notes: list[str]) -> None:
    """Note the flags a reader of the file cannot know by the family's tokens."""
    added = {str(entry.get("content")): entry for entry in data.get("added_tokens") or []}
    rule = flag_rule(entries["model"], "", frozenset(entries["tokens"]))
    known = {text: NO_FLAGS if rule is None else rule.of(text) for text in added}
    for flag in ("lstrip", "rstrip", "single_word"):
        lost = [
            text
            for text, entry in added.items()
            if getattr(TokenFlags.of(entry), flag) != getattr(known[text], flag)
        ]
        if lost:
            notes.append(f"flag {flag} of {', '.join(lost[:5])} cannot be stated in GGUF")
