"""Tokenizers built from the `tokenizer.ggml.*` arrays of a GGUF file, in memory.

"gpt2": byte-level BPE from tokens and merges. "llama": SentencePiece BPE, whose file has a score
for every piece and no merges; the merges are derived: every way to cut a piece into two others,
best score first, which is the order in which SentencePiece merges. "gemma4": BPE with merges over
text in which U+2581 stands for a space. Loading a tokenizer.json of the same 151k vocabulary takes
more than twice the time.
Keys are given without their prefix. Knows nothing of reading files.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.text.byte_alphabet import SPACE_MARK
from headrace.text.vocabulary import Vocabulary
from headrace.weights.pretokenizers import DEFAULT, PRETOKENIZERS, PreTokenizer
from headrace.weights.tokenizer_data import SPECIAL_KINDS, TokenKind, end_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE

# Written by converters for "none"; a key may also hold it for ids the model does not have.
_NO_TOKEN = 0xFFFFFFFF

_ROLES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_MODELS = ("gpt2", "llama", "gemma4")
# Other values of tokenizer.ggml.model that are known, by what they mean.
_OTHER_MODELS = {
    "bert": "WordPiece, of embedding models",
    "t5": "SentencePiece unigram",
    "rwkv": "the trie of RWKV World",
    "plamo2": "PLaMo 2's own",
    "hybriddna": "of DNA models",
    "whitespace": "words between spaces",
}
_PRE_REMEDY = "--tokenizer-pre NAME or LLM(..., tokenizer_pre=NAME)"


def vocabulary_from_gguf(
    gguf: Mapping[str, Any], eos_token_ids: tuple[int, ...], pre: str | None
) -> Vocabulary:
    """Build the tokenizer of a GGUF file.

    gguf: entries of `tokenizer.ggml.*` by the rest of their key. eos_token_ids: end ids known from
    elsewhere, taken as control tokens; () reads them from the file. pre: overrides the file's.
    Raises CheckpointError for missing or uneven arrays, UnsupportedModelError for another kind of
    tokenizer or an unknown pre-tokenizer.
    """
    model = gguf.get("model")
    if model not in _MODELS:
        meaning = _OTHER_MODELS.get(str(model))
        raise UnsupportedModelError(
            f"tokenizer.ggml.model is {model!r}{f' ({meaning})' if meaning else ''}; this version "
            "builds 'gpt2' (byte-level BPE), 'llama' (SentencePiece) and 'gemma4' (BPE over text). "
            "Use a folder with tokenizer.json instead."
        )
    tokens = _strings(gguf, "tokens")
    ids = {role: _token_id(gguf, key, len(tokens)) for role, key in _ROLES.items()}
    ends = eos_token_ids or end_ids(gguf, len(tokens))
    kinds = _kinds(gguf, len(tokens), control=(*ends, ids["bos_token"]), unknown=ids["unk_token"])

    if model == "gpt2":
        rule = _rule(gguf, pre)
        backend = _byte_level_backend(tokens, _strings(gguf, "merges"), rule)
        spaced, add_bos = False, rule.add_bos
    elif model == "gemma4":
        spaced, add_bos = False, True
        backend = _text_backend(tokens, _strings(gguf, "merges"), ids["unk_token"])
        kinds = _with_line_breaks(tokens, kinds)
    else:
        spaced, add_bos = bool(gguf.get("add_space_prefix", True)), True
        backend = _sentencepiece_backend(gguf, tokens, kinds, ids["unk_token"], spaced)
    literal, special = _add_tokens(backend, tokens, kinds)

    add_bos = bool(gguf.get("add_bos_token", add_bos))
    add_eos = bool(gguf.get("add_eos_token", False))
    bos, eos = ids["bos_token"], ids["eos_token"]
    return Vocabulary(
        backend=backend,
        piece=lambda token_id: tokens[token_id] if 0 <= token_id < len(tokens) else None,
        spelling="bytes" if model == "gpt2" else "sentencepiece",
        literal=literal,
        special_ids=special,
        prefix_ids=(bos,) if add_bos and bos is not None else (),
        suffix_ids=(eos,) if add_eos and eos is not None else (),
        strips_first_space=spaced,
        bos_token_id=bos,
        eos_token_ids=ends,
        named={role: tokens[token_id] for role, token_id in ids.items() if token_id is not None},
    )


def _strings(gguf: Mapping[str, Any], key: str) -> list[str]:
    values = gguf.get(key)
    if values is None:
        raise CheckpointError(
            f"tokenizer.ggml.{key} is missing: this file has no complete tokenizer. Convert "
            "the model again, or use a folder with tokenizer.json."
        )
    return values if isinstance(values, list) else [str(value) for value in values]


def _numbers(values: Any) -> list[Any]:
    """A list of Python numbers from a list or a NumPy array."""
    numbers: list[Any] = values.tolist() if hasattr(values, "tolist") else list(values)
    return numbers


def _token_id(gguf: Mapping[str, Any], key: str, count: int) -> int | None:
    value = gguf.get(key)
    if value is None or int(value) == _NO_TOKEN:
        return None
    if not 0 <= int(value) < count:
        raise CheckpointError(
            f"tokenizer.ggml.{key} is {int(value)}, outside the vocabulary of {count} tokens"
        )
    return int(value)


def _kinds(
    gguf: Mapping[str, Any], count: int, control: Iterable[int | None], unknown: int | None
) -> list[int]:
    """Kind of every token. Ends and beginnings of text are control tokens whatever the file says:
    several converters wrote them as user-defined, and they would be printed."""
    stated = gguf.get("token_type")
    kinds = [int(TokenKind.NORMAL)] * count if stated is None else _numbers(stated)
    if len(kinds) != count:
        raise CheckpointError(
            f"tokenizer.ggml.token_type has {len(kinds)} entries for {count} tokens; the file is "
            "damaged"
        )
    if stated is None and unknown is not None:
        kinds[unknown] = TokenKind.UNKNOWN
    for token_id in control:
        if token_id is not None and token_id < count and kinds[token_id] not in SPECIAL_KINDS:
            kinds[token_id] = TokenKind.CONTROL
    return kinds


def _rule(gguf: Mapping[str, Any], pre: str | None) -> PreTokenizer:
    name = pre or gguf.get("pre")
    if not name:
        warnings.warn(
            "tokenizer.ggml.pre is missing: how this model splits text is unknown, and a generic "
            "rule is used, which lowers its quality. Convert the file again with a current "
            f"converter, or name the rule: {_PRE_REMEDY}.",
            stacklevel=2,
        )
        return DEFAULT
    rule = PRETOKENIZERS.get(str(name))
    if rule is None:
        stated = "--tokenizer-pre" if pre else "tokenizer.ggml.pre"
        raise UnsupportedModelError(
            f"{stated} is {str(name)!r}, a way of splitting text this version does not know. "
            f"Name one that splits the same way with {_PRE_REMEDY}: "
            f"{', '.join(sorted(PRETOKENIZERS))}; or use a folder with tokenizer.json."
        )
    return rule


def _byte_level_backend(tokens: list[str], merges: list[str], rule: PreTokenizer) -> Backend:
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

    backend = Tokenizer(_bpe(tokens, merges, ignore_merges=rule.ignore_merges))
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in rule.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    return backend


def _text_backend(tokens: list[str], merges: list[str], unknown: int | None) -> Backend:
    """BPE over whole lines of text with marks for spaces; what has no token is spelled in bytes."""
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

    unk_token = None if unknown is None else tokens[unknown]
    model = _bpe(tokens, merges, byte_fallback=True, fuse_unk=True, unk_token=unk_token)
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", SPACE_MARK)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), "isolated")
    return backend


def _with_line_breaks(tokens: list[str], kinds: list[int]) -> list[int]:
    """Kinds in which runs of line breaks are user-defined: no merge makes them, so they are found
    in the text as they stand."""
    return [
        int(TokenKind.USER_DEFINED)
        if kind == TokenKind.NORMAL and len(token) > 1 and not token.strip("\n")
        else kind
        for token, kind in zip(tokens, kinds, strict=True)
    ]


def _bpe(tokens: list[str], merges: list[str], **options: Any) -> BPE:
    from tokenizers import models

    vocab = dict(zip(tokens, range(len(tokens)), strict=True))
    pairs = [cast(tuple[str, str], tuple(merge.split(" ", 1))) for merge in merges]
    try:
        return models.BPE(vocab=vocab, merges=pairs, **options)
    except Exception as error:  # the library raises nothing narrower
        usable = _usable_pairs(pairs, vocab)
        if len(usable) == len(pairs):
            raise CheckpointError(f"tokenizer.ggml.merges cannot be used: {error}") from error
        # A merge into or from a string the vocabulary lacks can never apply.
        return models.BPE(vocab=vocab, merges=usable, **options)


def _usable_pairs(
    pairs: Sequence[tuple[str, str]], vocab: Mapping[str, int]
) -> list[tuple[str, str]]:
    return [
        pair
        for pair in pairs
        if len(pair) == 2 and all(part in vocab for part in (*pair, pair[0] + pair[1]))
    ]


def _sentencepiece_backend(
    gguf: Mapping[str, Any],
    tokens: list[str],
    kinds: list[int],
    unknown: int | None,
    spaced: bool,
) -> Backend:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    scores = gguf.get("scores")
    if scores is None or len(scores) != len(tokens):
        raise CheckpointError(
            f"tokenizer.ggml.scores has {0 if scores is None else len(scores)} entries for "
            f"{len(tokens)} tokens; without scores the order of merging is unknown"
        )
    backend = Tokenizer(
        models.BPE(
            vocab=dict(zip(tokens, range(len(tokens)), strict=True)),
            merges=derive_merges(tokens, scores, kinds),
            byte_fallback=True,
            fuse_unk=True,
            unk_token=None if unknown is None else tokens[unknown],
        )
    )
    if spaced and gguf.get("legacy") is False:
        # Not of GGUF: a folder's tokenizer.model of which tokenizer_config.json says so.
        backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE_MARK, "first", split=False)
        return backend
    marks = normalizers.Replace(" ", SPACE_MARK)
    prefix = normalizers.Prepend(SPACE_MARK)
    backend.normalizer = normalizers.Sequence([prefix, marks]) if spaced else marks
    return backend


def derive_merges(
    tokens: Sequence[str], scores: Any, kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """Merges of a SentencePiece BPE vocabulary, in the order they apply.

    SentencePiece joins the neighbours whose joint piece has the highest score, the leftmost first;
    BPE joins the pair of lowest rank, the leftmost first. So every way of cutting a piece in two
    pieces is a merge, best score first. (Cuts of one piece get neighbouring ranks; their order
    would show only where two of them overlap, which joining from the left does not lead to.)
    Only normal pieces take part. scores: a list or NumPy array of numbers, distinct for pieces
    that merges make.
    """
    normal = {
        piece: token_id
        for token_id, piece in enumerate(tokens)
        if kinds[token_id] == TokenKind.NORMAL
    }
    values = _numbers(scores)
    order = sorted(
        (token_id for piece, token_id in normal.items() if len(piece) > 1),
        key=lambda token_id: (-values[token_id], token_id),
    )
    merges: list[tuple[str, str]] = []
    for token_id in order:
        piece = tokens[token_id]
        for cut in range(len(piece) - 1, 0, -1):
            left = piece[:cut]
            if left in normal:
                right = piece[cut:]
                if right in normal:
                    merges.append((left, right))
    return merges


def _add_tokens(
    backend: Backend, tokens: list[str], kinds: list[int]
) -> tuple[dict[int, str], frozenset[int]]:
    """Register control and user-defined tokens; give their text by id, and the special ids."""
    from tokenizers import AddedToken

    literal_kinds = {*SPECIAL_KINDS, TokenKind.USER_DEFINED}
    literal = {i: tokens[i] for i, kind in enumerate(kinds) if kind in literal_kinds}
    special = frozenset(i for i in literal if kinds[i] in SPECIAL_KINDS)
    backend.add_tokens(
        [
            AddedToken(text, special=token_id in special, normalized=False)
            for token_id, text in literal.items()
            if text
        ]
    )
    return literal, special
