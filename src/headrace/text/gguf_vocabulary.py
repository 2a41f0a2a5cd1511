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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.text.byte_alphabet import SPACE_MARK
from headrace.text.gguf_tokens import (
    LITERAL_KINDS,
    check_tokens,
    kinds_of,
    merges_of,
    scores_of,
    strings,
    token_id_of,
)
from headrace.text.vocabulary import Vocabulary
from headrace.weights.tokenizer.added_tokens import NO_FLAGS, TokenFlags, flag_rule
from headrace.weights.tokenizer.data import SPECIAL_KINDS, TokenizerData, TokenKind, end_ids
from headrace.weights.tokenizer.piece_cuts import check_pieces, cuts_of
from headrace.weights.tokenizer.pretokenizers import DEFAULT, PRETOKENIZERS, PreTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE

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
# As a number: most tokens are, and to ask an enumeration 150,000 times takes longer.
_NORMAL = int(TokenKind.NORMAL)
_PRE_REMEDY = "--tokenizer-pre NAME or LLM(..., tokenizer_pre=NAME)"


def vocabulary_from_gguf(
    data: TokenizerData, eos_token_ids: tuple[int, ...], pre: str | None
) -> Vocabulary:
    """Build the tokenizer of a GGUF file.

    data: with the entries of `tokenizer.ggml.*` by the rest of their key. eos_token_ids: end ids
    known from elsewhere, taken as control tokens; () reads them from the file. pre: overrides the
    file's. Raises CheckpointError for missing, uneven or damaged arrays, UnsupportedModelError for
    another kind of tokenizer or an unknown pre-tokenizer.
    """
    gguf = data.gguf
    model = gguf.get("model")
    if model not in _MODELS:
        meaning = _OTHER_MODELS.get(str(model))
        raise UnsupportedModelError(
            f"tokenizer.ggml.model is {model!r}{f' ({meaning})' if meaning else ''}; this version "
            "builds 'gpt2' (byte-level BPE), 'llama' (SentencePiece) and 'gemma4' (BPE over text). "
            "Use a folder with tokenizer.json instead."
        )
    tokens = strings(gguf, "tokens")
    ids = {role: token_id_of(gguf, key, len(tokens)) for role, key in _ROLES.items()}
    ends = eos_token_ids or end_ids(gguf, len(tokens))
    kinds = kinds_of(gguf, len(tokens), control=(*ends, ids["bos_token"]), unknown=ids["unk_token"])
    vocab = dict(zip(tokens, range(len(tokens)), strict=True))
    check_tokens(tokens, kinds, vocab)

    if model == "gpt2":
        rule = _rule(gguf, pre)
        backend = _byte_level_backend(vocab, merges_of(gguf), rule)
        spaced, add_bos = False, rule.add_bos
    elif model == "gemma4":
        spaced, add_bos = False, True
        backend = _text_backend(tokens, vocab, merges_of(gguf), ids["unk_token"])
        kinds = _with_line_breaks(tokens, kinds)
    else:
        spaced, add_bos = bool(gguf.get("add_space_prefix", True)), True
        backend = _sentencepiece_backend(gguf, tokens, vocab, kinds, ids["unk_token"], spaced)
    literal, special = _add_tokens(backend, tokens, kinds, _flags(data, str(model), tokens))

    add_bos = bool(gguf.get("add_bos_token", add_bos))
    add_eos = bool(gguf.get("add_eos_token", False))
    bos, eos = ids["bos_token"], ids["eos_token"]
    return Vocabulary(
        backend=backend,
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


def _byte_level_backend(
    vocab: dict[str, int], merges: list[tuple[str, ...]], rule: PreTokenizer
) -> Backend:
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

    backend = Tokenizer(_bpe(vocab, merges, ignore_merges=rule.ignore_merges))
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in rule.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    return backend


def _text_backend(
    tokens: list[str],
    vocab: dict[str, int],
    merges: list[tuple[str, ...]],
    unknown: int | None,
) -> Backend:
    """BPE over whole lines of text with marks for spaces; what has no token is spelled in bytes."""
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

    unk_token = None if unknown is None else tokens[unknown]
    model = _bpe(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token=unk_token)
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


def _bpe(vocab: dict[str, int], merges: list[tuple[str, ...]], **options: Any) -> BPE:
    from tokenizers import models

    pairs = cast(list[tuple[str, str]], merges)
    try:
        return models.BPE(vocab=vocab, merges=pairs, **options)
    except Exception as error:  # the library raises nothing narrower
        usable = _usable_pairs(pairs, vocab)
        if len(usable) == len(pairs):
            raise CheckpointError(f"tokenizer.ggml.merges cannot be used: {error}") from error
        if not usable:
            raise CheckpointError(
                f"tokenizer.ggml.merges: none of the {len(pairs)} joins tokens of this vocabulary; "
                "the file is damaged: fetch or convert it again"
            ) from error
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
    vocab: dict[str, int],
    kinds: list[int],
    unknown: int | None,
    spaced: bool,
) -> Backend:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    scores = scores_of(gguf, tokens, kinds)
    backend = Tokenizer(
        models.BPE(
            vocab=vocab,
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
    tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """Merges of a SentencePiece BPE vocabulary, in the order they apply.

    SentencePiece joins the neighbours whose joint piece has the highest score, the leftmost first;
    BPE joins the pair of lowest rank, the leftmost first. So every way of cutting a piece in two
    pieces is a merge, best score first. (Cuts of one piece get neighbouring ranks; their order
    would show only where two of them overlap, which joining from the left does not lead to.)
    Only normal pieces take part. scores: finite, and distinct for pieces that merges make. Raises
    CheckpointError for pieces too long to be cut at every place.
    """
    normal = {
        piece: token_id
        for token_id, piece in enumerate(tokens)
        if kinds[token_id] == TokenKind.NORMAL
    }
    check_pieces(normal)
    order = sorted(
        (piece for piece in normal if len(piece) > 1),
        key=lambda piece: (-scores[normal[piece]], normal[piece]),
    )
    merges: list[tuple[str, str]] = []
    for piece in order:
        merges += [(piece[:cut], piece[cut:]) for cut in cuts_of(piece, normal)]
    return merges


def _flags(data: TokenizerData, model: str, tokens: Sequence[str]) -> Callable[[str], TokenFlags]:
    """The flags of an added token by its text: as stated, else as the family is known to have."""
    stated = data.flags
    if stated is not None:
        return lambda text: stated.get(text, NO_FLAGS)
    rule = flag_rule(model, data.model_name, frozenset(tokens))
    return (lambda text: NO_FLAGS) if rule is None else rule.of


def _add_tokens(
    backend: Backend,
    tokens: Sequence[str],
    kinds: Sequence[int],
    flags: Callable[[str], TokenFlags],
) -> tuple[dict[int, str], frozenset[int]]:
    """Register control and user-defined tokens; give their text by id, and the special ids."""
    from tokenizers import AddedToken

    literal = {
        i: tokens[i] for i, kind in enumerate(kinds) if kind != _NORMAL and kind in LITERAL_KINDS
    }
    special = frozenset(i for i in literal if kinds[i] in SPECIAL_KINDS)
    backend.add_tokens(
        [
            AddedToken(text, special=token_id in special, normalized=False, **asdict(flags(text)))
            for token_id, text in literal.items()
            if text
        ]
    )
    return literal, special
