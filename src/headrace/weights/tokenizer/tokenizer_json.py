"""tokenizer.json, checked before anybody makes a tokenizer of it.

The `tokenizers` library trusts its file: some values end in a panic of its Rust code, some in an
abort of the process for want of memory, some in a tokenizer that works differently from run to run.
What passes here has the shape the library documents, steps that are known, a vocabulary in which no
two tokens share an id, merges that make their tokens longer, and steps that cannot make a text grow
beyond all measure (`tokenizer_growth.py`). What only running it shows (an expression that never
ends) is tested by `headrace.text`.

Source: the tokenizers library (fields of tokenizer.json, and what each step does to a text).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from headrace.errors import CheckpointError, UnsupportedModelError, shown
from headrace.weights.files.json_file import MAX_JSON_BYTES, json_object
from headrace.weights.files.small_file import read_small_file
from headrace.weights.tokenizer.growth import Step, check_pre_tokenizer, normalizer_growth

MAX_STEPS = 64
"""Of one normalizer, pre-tokenizer or post-processor, sequences included. Real ones have ten."""

MAX_AFFIX_TOKENS = 1024
"""Tokens that a post-processor may put around a text. Real ones put one or two."""

_MAX_REASON_CHARS = 500

_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**32 - 1)]


class _AddedToken(msgspec.Struct, frozen=True):
    """A token that is looked for in the text before it is split."""

    id: _Id
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    special: bool = False


class _Model(msgspec.Struct, frozen=True):
    """The vocabulary and how pieces of text become its tokens."""

    vocab: dict[str, _Id] | list[tuple[str, float]]
    type: Literal["BPE", "WordPiece", "WordLevel", "Unigram"] | None = None
    merges: list[str | tuple[str, str]] | None = None
    dropout: float | None = None
    unk_token: str | None = None
    unk_id: _Id | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    max_input_chars_per_word: Annotated[int, msgspec.Meta(ge=0, le=4096)] | None = None


class _File(msgspec.Struct, frozen=True):
    """The parts of a tokenizer.json that are read."""

    model: _Model
    added_tokens: list[_AddedToken] | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None


@dataclass(frozen=True)
class TokenizerJson:
    """A tokenizer.json that was checked."""

    text: str
    """What was read, and is handed on: reading again could find another file."""
    content: Mapping[str, Any]
    """The parsed object."""
    growth: int
    """How many times longer, in bytes, the normalizer can make a text at most."""

    def added_ids(self, content: str) -> set[int]:
        """Ids of the added tokens with this text."""
        added = self.content.get("added_tokens") or []
        return {token["id"] for token in added if token["content"] == content}


def read_tokenizer_json(path: Path) -> TokenizerJson:
    """The checked content of `path`.

    Raises CheckpointError naming the file and the field where it is missing, damaged or hostile,
    UnsupportedModelError for a step this version does not know.
    """
    raw = read_small_file(path, MAX_JSON_BYTES)
    content = json_object(raw, path)
    try:
        file = msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        # It may repeat a value of the file.
        reason = str(error) if len(str(error)) < _MAX_REASON_CHARS else "a value of a wrong type"
        raise CheckpointError(f"{path} is not a usable tokenizer.json: {reason}") from error
    try:
        num_tokens = _check_vocabulary(file)
        growth = normalizer_growth(_steps(file.normalizer, "normalizer"))
        check_pre_tokenizer(_steps(file.pre_tokenizer, "pre_tokenizer"))
        _check_affixes(_steps(file.post_processor, "post_processor"), num_tokens)
        _steps(file.decoder, "decoder")
    except (CheckpointError, UnsupportedModelError) as error:
        raise type(error)(f"{path}: {error}") from error
    return TokenizerJson(raw.decode("utf-8-sig"), content, growth)


def _check_vocabulary(file: _File) -> int:
    """The highest id + 1; raises CheckpointError where ids or merges cannot be right."""
    model = file.model
    vocab = model.vocab
    ids = vocab.values() if isinstance(vocab, dict) else range(len(vocab))
    if isinstance(vocab, dict) and len(set(ids)) != len(vocab):
        first: dict[int, str] = {}
        for token, token_id in vocab.items():
            other = first.setdefault(token_id, token)
            if other != token:
                raise CheckpointError(
                    f"model.vocab: {shown(other)} and {shown(token)} both have id {token_id}; the "
                    "file is damaged"
                )
    if isinstance(vocab, list) and len({token for token, _ in vocab}) != len(vocab):
        (token, count), *_ = Counter(token for token, _ in vocab).most_common(1)
        raise CheckpointError(f"model.vocab has {shown(token)} {count} times; the file is damaged")
    added = [token.id for token in file.added_tokens or [] if token.content]
    num_tokens: int = max([-1, *ids, *added]) + 1
    if num_tokens == 0 or not any(vocab if isinstance(vocab, dict) else (t for t, _ in vocab)):
        raise CheckpointError("model.vocab has no token with a text; the file is damaged")
    if model.unk_id is not None and model.unk_id >= len(vocab):
        raise CheckpointError(
            f"model.unk_id is {model.unk_id}, outside the vocabulary of {len(vocab)} tokens"
        )
    if model.dropout:
        raise UnsupportedModelError(
            f"model.dropout is {model.dropout}: every text would have other tokens each time. Set "
            "it to null, which is what a trained model is used with"
        )
    _check_prefix(model)
    return num_tokens


def _check_prefix(model: _Model) -> None:
    """A merge drops the prefix of its second part, so that part has to have it."""
    prefix = model.continuing_subword_prefix
    if not prefix or model.type not in (None, "BPE"):
        return
    for number, merge in enumerate(model.merges or []):
        parts = tuple(merge.split(" ")) if isinstance(merge, str) else merge
        if len(parts) != 2 or not parts[1].startswith(prefix):
            raise CheckpointError(
                f"model.merges[{number}] is {shown(merge)}; two tokens are required, the second of "
                f"which begins with continuing_subword_prefix {shown(prefix)}"
            )


_INSIDE = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


def _steps(part: dict[str, Any] | None, name: str) -> list[Step]:
    """The steps of a part in order, each with the name errors call it; sequences are opened."""
    steps: list[Step] = []
    inside = _INSIDE[name]
    waiting: list[tuple[str, Any]] = [] if part is None else [(name, part)]
    num_seen = 0
    while waiting:
        place, step = waiting.pop()
        num_seen += 1
        if num_seen > MAX_STEPS:
            raise CheckpointError(f"{name} has more than {MAX_STEPS} steps, which is the limit")
        kind = step.get("type") if isinstance(step, dict) else None
        if not isinstance(kind, str):
            raise CheckpointError(f"{place} is {shown(step)}; an object with a type is required")
        if kind != "Sequence":
            steps.append((place, step))
            continue
        children = step.get(inside)
        if not isinstance(children, list):
            raise CheckpointError(f"{place}.{inside} is {shown(children)}; a list is required")
        for index in reversed(range(len(children[: MAX_STEPS + 1]))):
            waiting.append((f"{place}.{inside}[{index}]", children[index]))
    return steps


def _check_affixes(steps: list[Step], num_tokens: int) -> None:
    """Raise CheckpointError where a text would get too many tokens around it, or unknown ones."""
    num_affixes = 0
    for place, step in steps:
        kind = step["type"]
        if kind == "TemplateProcessing":
            num_affixes += _check_template(place, step, num_tokens)
        elif kind in ("BertProcessing", "RobertaProcessing"):
            for key in ("sep", "cls"):
                pair = step.get(key)
                if not isinstance(pair, list) or len(pair) != 2:
                    raise CheckpointError(f"{place}.{key} is {shown(pair)}; [text, id] is required")
                _check_id(pair[1], num_tokens, f"{place}.{key}")
            num_affixes += 2
        elif kind != "ByteLevel":
            raise UnsupportedModelError(
                f"{place}.type is {shown(kind)}, which this version does not know"
            )
    if num_affixes > MAX_AFFIX_TOKENS:
        raise CheckpointError(
            f"post_processor puts {num_affixes} tokens around a text; the limit is "
            f"{MAX_AFFIX_TOKENS}"
        )


def _check_template(place: str, step: Mapping[str, Any], num_tokens: int) -> int:
    """How many tokens the templates put around a text or a pair of texts together."""
    special = step.get("special_tokens")
    if not isinstance(special, dict):
        raise CheckpointError(f"{place}.special_tokens is {shown(special)}; an object is required")
    lengths: dict[str, int] = {}
    for name, entry in special.items():
        ids = entry.get("ids") if isinstance(entry, dict) else None
        if not isinstance(ids, list) or not ids:
            raise CheckpointError(
                f"{place}.special_tokens[{shown(name)}].ids is {shown(ids)}; a list of ids is "
                "required"
            )
        for token_id in ids:
            _check_id(token_id, num_tokens, f"{place}.special_tokens[{shown(name)}].ids")
        lengths[name] = len(ids)
    num_affixes = 0
    for key in ("single", "pair"):
        pieces = step.get(key)
        if not isinstance(pieces, list):
            raise CheckpointError(f"{place}.{key} is {shown(pieces)}; a list is required")
        num_sequences = 0
        for piece in pieces:
            named = piece.get("SpecialToken") if isinstance(piece, dict) else None
            if named is None:
                num_sequences += 1
                continue
            name = named.get("id") if isinstance(named, dict) else None
            if not isinstance(name, str) or name not in lengths:
                raise CheckpointError(
                    f"{place}.{key} names {shown(name)}, which special_tokens does not have"
                )
            num_affixes += lengths[name]
        if num_sequences > 2 or (key == "single" and num_sequences != 1):
            raise CheckpointError(
                f"{place}.{key} holds the text {num_sequences} times; once is required"
            )
    return num_affixes


def _check_id(token_id: object, num_tokens: int, place: str) -> None:
    if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
        raise CheckpointError(f"{place} has {shown(token_id)}; a token's id is required")
    if token_id >= num_tokens:
        raise CheckpointError(f"{place} has {token_id}, outside the {num_tokens} tokens")
