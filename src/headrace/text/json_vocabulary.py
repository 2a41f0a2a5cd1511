"""Tokenizers read from a tokenizer.json by the `tokenizers` library, with tokenizer_config.json.

What the file's post-processor adds is what `add_special_tokens` adds, as in transformers; only
where it adds nothing is `add_bos_token: true` of the config honoured (older Llama classes did that
themselves). Truncation and padding stored in the file are switched off: a prompt is never cut.
How pieces spell bytes is read off the decoder.
The file may be a stranger's, so it is checked before the library gets it, and the tokenizer it
makes is tried before it serves anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import CheckpointError, shown
from headrace.text.byte_alphabet import SPACE_MARK, Spelling
from headrace.text.library import building
from headrace.text.trial import try_out
from headrace.text.vocabulary import Vocabulary
from headrace.weights.files.small_file import is_named
from headrace.weights.tokenizer.added_tokens import TokenFlags
from headrace.weights.tokenizer.data import token_text
from headrace.weights.tokenizer.tokenizer_json import TokenizerJson, read_tokenizer_json

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend

_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens")


def vocabulary_from_json(
    path: Path, config: Mapping[str, Any], eos_token_ids: tuple[int, ...]
) -> Vocabulary:
    """Read `path` (tokenizer.json). config: tokenizer_config.json, or {}.

    Raises CheckpointError when the file is absent, not a tokenizer.json, or makes a tokenizer that
    fails on plain texts; UnsupportedModelError for a step this version does not know.
    """
    from tokenizers import Tokenizer

    if not is_named(path):
        raise CheckpointError(f"{path} is missing: the folder has no tokenizer that can be read")
    file = read_tokenizer_json(path)
    with building(str(path)):
        backend = Tokenizer.from_str(file.text)
        _check_ids(backend, file, path)
        backend.no_truncation()
        backend.no_padding()
        named = {role: text for role in _ROLES if (text := token_text(config.get(role)))}
        _add_config_tokens(backend, config, named)
        try_out(backend, file, str(path))
        return _vocabulary(backend, config, named, eos_token_ids, file.growth)


def _vocabulary(
    backend: Backend,
    config: Mapping[str, Any],
    named: Mapping[str, str],
    eos_token_ids: tuple[int, ...],
    growth: int,
) -> Vocabulary:
    added = backend.get_added_tokens_decoder()
    spelling, strips, marked = _spelling(backend)
    bos_id = _id(backend, named.get("bos_token"))
    eos_id = _id(backend, named.get("eos_token"))
    prefix, suffix = _affixes(backend)
    if not prefix and not suffix:
        prefix = (bos_id,) if config.get("add_bos_token") is True and bos_id is not None else ()
        suffix = (eos_id,) if config.get("add_eos_token") is True and eos_id is not None else ()

    def printed(text: str) -> str:
        return text.replace(SPACE_MARK, " ") if marked else text

    return Vocabulary(
        backend=backend,
        spelling=spelling,
        literal={token_id: printed(token.content) for token_id, token in added.items()},
        special_ids=frozenset(token_id for token_id, token in added.items() if token.special),
        prefix_ids=prefix,
        suffix_ids=suffix,
        strips_first_space=strips,
        bos_token_id=bos_id,
        eos_token_ids=eos_token_ids or (() if eos_id is None else (eos_id,)),
        growth=growth,
        named=named,
    )


def _id(backend: Backend, text: str | None) -> int | None:
    return None if text is None else backend.token_to_id(text)


def _check_ids(backend: Backend, file: TokenizerJson, path: Path) -> None:
    """Raise CheckpointError where an added token has another id than the file says.

    The library numbers those that the vocabulary lacks one after another, whatever the file says.
    """
    for token in file.content.get("added_tokens") or []:
        content, stated = token["content"], token["id"]
        if content and (token_id := backend.token_to_id(content)) != stated:
            other = backend.id_to_token(stated)
            reason = "ids before it have no token" if other is None else f"{shown(other)} has it"
            raise CheckpointError(
                f"{path}: added_tokens: {shown(content)} has id {stated}, but {reason}, so that it "
                f"would get {token_id}; the file is damaged: fetch it again"
            )


def _add_config_tokens(
    backend: Backend, config: Mapping[str, Any], named: Mapping[str, str]
) -> None:
    """Register the added tokens only tokenizer_config.json has, with the flags stated there; ids
    the file lacks stay out."""
    stated = config.get("added_tokens_decoder")
    values: list[Any] = [*stated.values()] if isinstance(stated, Mapping) else []
    values += [config.get(role) for role in _ROLES]
    texts = list(named.values())
    for key in _LISTS:
        listed = config.get(key) or ()
        entries = listed.values() if isinstance(listed, Mapping) else listed
        if isinstance(entries, str) or not isinstance(entries, Iterable):
            raise CheckpointError(
                f"tokenizer_config.json: {key} is {shown(listed)}; a list of tokens is required"
            )
        values += entries
        texts += [text for value in entries if (text := token_text(value))]
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    # Where several state a token the first counts, as in transformers.
    entries_by_text: dict[str, Mapping[str, Any]] = {text: {} for text in texts}
    for value in reversed(values):
        if isinstance(value, Mapping) and (text := token_text(value)):
            entries_by_text[text] = value
    missing = [
        _added_token(text, entry, special=text in texts)
        for text, entry in entries_by_text.items()
        if text not in known and backend.token_to_id(text) is not None
    ]
    if missing:
        backend.add_tokens(missing)


def _added_token(text: str, entry: Mapping[str, Any], *, special: bool) -> AddedToken:
    """A token with the flags of its entry in tokenizer_config.json; special ones always are."""
    from tokenizers import AddedToken

    return AddedToken(
        text,
        special=special or entry.get("special") is True,
        normalized=entry.get("normalized") is True,
        **asdict(TokenFlags.of(entry)),
    )


def _affixes(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the post-processor puts before and after one text, found with a probe."""
    probe = backend.encode("a", add_special_tokens=True)
    own = [index for index, special in enumerate(probe.special_tokens_mask) if not special]
    first, last = (own[0], own[-1] + 1) if own else (len(probe.ids), len(probe.ids))
    return tuple(probe.ids[:first]), tuple(probe.ids[last:])


def _spelling(backend: Backend) -> tuple[Spelling | str, bool, bool]:
    """(spelling, whether the first space of a text is stripped, whether U+2581 is a space)."""
    decoder = backend.decoder
    if decoder is None:
        return "no decoder", False, False
    state = json.loads(decoder.__getstate__())
    steps = state["decoders"] if state["type"] == "Sequence" else [state]
    by_type = {step["type"]: step for step in steps}
    if "ByteLevel" in by_type:
        return "bytes", False, False
    if "ByteFallback" in by_type or "Metaspace" in by_type:
        strip = by_type.get("Strip", {})
        stripped = strip.get("content") == " " and strip.get("start", 0) > 0
        metaspace = by_type.get("Metaspace")
        if metaspace is not None and metaspace.get("prepend_scheme", "always") != "never":
            stripped = True
        return "sentencepiece", stripped, True
    return f"decoder {state['type']}", False, False
