"""How many times longer, in bytes, the steps of a tokenizer.json can make a text.

Steps that each look harmless can together fill the memory: a chain of replacements multiplies. So
every step has a bound of what it does to a text at most, and all of a part together have a limit,
which no real tokenizer comes near.

Source: the tokenizers library (what each step does to a text).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import CheckpointError, UnsupportedModelError, shown

Step = tuple[str, dict[str, Any]]
"""A step of a tokenizer.json, after the name that errors call it by."""

MAX_PATTERN_CHARS = 65_536
"""Of an expression or a text that a step looks for. The longest known has about 5,000."""

MAX_REPLACED_CHARS = 128
"""Of a text that a normalizer replaces. Real ones are one or two characters."""

MAX_GROWTH = 4096
"""How many times longer, in bytes, the normalizer may make a text. The steps of ALBERT, which grow
most of those known, could by the bounds used here make it 1,500 times longer."""

MAX_SPLIT_GROWTH = 16
"""The same of the pre-tokenizer. SentencePiece's marks need 8, the byte alphabet 4."""

# What Unicode's forms do at most to the UTF-8 of any character; a test goes through all of them.
_COMPOSED_GROWTH = 3
_COMPATIBLE_GROWTH = 11
_LOWER_GROWTH = 2

_Grow = Callable[[str, dict[str, Any]], int]


def normalizer_growth(steps: list[Step]) -> int:
    """What the steps of a normalizer do to a text. Raises CheckpointError where a step is damaged
    or all are too much, UnsupportedModelError for one that is not known."""
    return _growth(steps, _NORMALIZERS, MAX_GROWTH)


def check_pre_tokenizer(steps: list[Step]) -> None:
    """Raise CheckpointError where a step is damaged or all make a text too long,
    UnsupportedModelError for one that is not known."""
    _growth(steps, _PRE_TOKENIZERS, MAX_SPLIT_GROWTH)


def _growth(steps: list[Step], known: Mapping[str, _Grow], limit: int) -> int:
    """How many times longer all steps together can make a text, in bytes."""
    growth = 1
    form = 1
    for place, step in steps:
        kind = step["type"]
        grow = known.get(kind)
        if grow is None:
            raise UnsupportedModelError(
                f"{place}.type is {shown(kind)}, which this version does not know; known are "
                f"{', '.join(known)}"
            )
        if kind in _FORMS:
            # What one form has spelled out the next does not spell out again.
            form = max(form, grow(place, step))
        else:
            growth *= form * grow(place, step)
            form = 1
    growth *= form
    if growth > limit:
        raise CheckpointError(
            f"the steps of {steps[0][0].partition('.')[0]} can make a text {growth} times "
            f"longer; the limit is {limit}. No real tokenizer comes near: do not use this file"
        )
    return growth


def _same(place: str, step: dict[str, Any]) -> int:
    return 1


def _by(factor: int) -> _Grow:
    return lambda place, step: factor


def _text(step: Mapping[str, Any], key: str, place: str) -> str:
    value = step.get(key)
    if not isinstance(value, str) or len(value) > MAX_PATTERN_CHARS:
        raise CheckpointError(
            f"{place}.{key} is {shown(value)}; a text of at most {MAX_PATTERN_CHARS} characters is "
            "required"
        )
    return value


def _pattern(step: Mapping[str, Any], place: str) -> tuple[str, bool]:
    """What a step looks for, and whether it is an expression."""
    pattern = step.get("pattern")
    if isinstance(pattern, dict) and len(pattern) == 1:
        for key in ("String", "Regex"):
            if key in pattern:
                text = _text(pattern, key, f"{place}.pattern")
                if not text:
                    break
                return text, key == "Regex"
    raise CheckpointError(
        f'{place}.pattern is {shown(pattern)}; {{"String": text}} or {{"Regex": expression}} is '
        "required"
    )


def _replace_growth(place: str, step: dict[str, Any]) -> int:
    found, is_expression = _pattern(step, place)
    content_bytes = len(_text(step, "content", place).encode())
    if is_expression:
        # It may match a single byte, and nothing at all beside each.
        return 1 + content_bytes
    if len(found) > MAX_REPLACED_CHARS:
        raise CheckpointError(
            f"{place}.pattern.String is {shown(found)}; at most {MAX_REPLACED_CHARS} characters "
            "are replaced"
        )
    return max(1, -(-content_bytes // len(found.encode())))


def _prepend_growth(place: str, step: dict[str, Any]) -> int:
    # It stands before every stretch between two added tokens, which may be one byte long.
    return 1 + len(_text(step, "prepend", place).encode())


def _precompiled_growth(place: str, step: dict[str, Any]) -> int:
    """The longest text of SentencePiece's compiled map, which may stand for a single byte."""
    try:
        raw = base64.b64decode(_charsmap(step, place), validate=True)
    except (binascii.Error, ValueError) as error:
        raise CheckpointError(f"{place}.precompiled_charsmap is not base64: {error}") from error
    trie_bytes = int.from_bytes(raw[:4], "little")
    texts = raw[4 + trie_bytes :]
    if len(raw) < 4 or trie_bytes % 4 or not trie_bytes or len(raw) < 4 + trie_bytes:
        raise CheckpointError(
            f"{place}.precompiled_charsmap claims a table of {trie_bytes} bytes and has "
            f"{len(raw)}; it is damaged"
        )
    try:
        texts.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{place}.precompiled_charsmap: not UTF-8") from error
    return max(1, *(len(text) for text in texts.split(b"\0")))


def _charsmap(step: Mapping[str, Any], place: str) -> str:
    value = step.get("precompiled_charsmap")
    if not isinstance(value, str):
        raise CheckpointError(f"{place}.precompiled_charsmap is {shown(value)}; base64 is required")
    return value


def _split_growth(place: str, step: dict[str, Any]) -> int:
    _pattern(step, place)
    return 1


def _length_growth(place: str, step: dict[str, Any]) -> int:
    length = step.get("length")
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise CheckpointError(f"{place}.length is {shown(length)}; at least 1 is required")
    return 1


_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
# Bert's normalizer spells accents out before it drops them, and puts spaces around Chinese.
_NORMALIZERS: Mapping[str, _Grow] = {
    "NFC": _by(_COMPOSED_GROWTH),
    "NFD": _by(_COMPOSED_GROWTH),
    "NFKC": _by(_COMPATIBLE_GROWTH),
    "NFKD": _by(_COMPATIBLE_GROWTH),
    "BertNormalizer": _by(2 * _COMPOSED_GROWTH),
    "Strip": _same,
    "StripAccents": _same,
    "Lowercase": _by(_LOWER_GROWTH),
    "Nmt": _same,
    "Replace": _replace_growth,
    "Prepend": _prepend_growth,
    "Precompiled": _precompiled_growth,
    "ByteLevel": _by(2),
}
# A mark of up to 4 bytes stands for a space or before a piece; the byte alphabet has two bytes for
# some, and a space before the text.
_PRE_TOKENIZERS: Mapping[str, _Grow] = {
    "BertPreTokenizer": _same,
    "ByteLevel": _by(4),
    "CharDelimiterSplit": _same,
    "Metaspace": _by(8),
    "Whitespace": _same,
    "WhitespaceSplit": _same,
    "Split": _split_growth,
    "Punctuation": _same,
    "Digits": _same,
    "UnicodeScripts": _same,
    "FixedLength": _length_growth,
}
