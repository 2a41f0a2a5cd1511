"""The part of a request that is compared by meaning: the user's last message, and nothing else.

Everything else has to be equal to the byte: caller, model, system prompt, tools, sampling and
earlier turns. Embedding models hardly notice some changes of meaning, so these are compared here:
numbers ("5 mg", "50 mg"), negations, and the order of words where all words are the same ("from
Munich to Vienna", "from Vienna to Munich").
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

from headrace.gateway.cache.key import Around, key_of
from headrace.gateway.settings.cache import SemanticSettings

_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")
# English, German, French, Spanish, Italian and Portuguese.
_NEGATIONS = frozenset({
    "not", "no", "non", "never", "none", "nor", "neither", "nobody", "nothing", "nowhere",
    "without", "cannot", "except", "nicht", "kein", "keine", "keinen", "keinem", "keiner",
    "keines", "nie", "niemals", "ohne", "ne", "pas", "jamais", "sans", "aucun", "aucune", "nunca",
    "ninguno", "ninguna", "sin", "senza", "mai", "nessun", "nessuna", "n\u00e3o", "nem", "sem",
    "nenhum", "nenhuma",
})  # fmt: skip
_WORDING_BYTES = 16
_TEXT_TYPES = ("text", "input_text")


class Question(NamedTuple):
    """A question to look up by its meaning. Questions of one bucket may share answers unless
    `wording` forbids it."""

    text: str
    tenant: bytes
    bucket: bytes
    wording: bytes


def marks_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Its numbers in order, and its negations; both must be equal for the same meaning."""
    words = (word.casefold().replace("\u2019", "'") for word in _WORD.findall(text))
    negations = sorted(
        "not" if word.endswith("n't") or word == "cannot" else word
        for word in words
        if word in _NEGATIONS or word.endswith("n't")
    )
    return tuple(_NUMBER.findall(text)), tuple(negations)


def wording_of(text: str) -> bytes:
    """A digest of the words in any order, and one of them in order; case does not count."""
    words = [word.casefold() for word in _WORD.findall(text)]
    return _digest(sorted(words)) + _digest(words)


def is_reordered(one: bytes, other: bytes) -> bool:
    """Whether two wordings have the same words in different order."""
    half = _WORDING_BYTES
    return one[:half] == other[:half] and one[half:] != other[half:]


def may_be_same(one: str, other: str) -> bool:
    """Whether two texts are compared by meaning at all."""
    reordered = is_reordered(wording_of(one), wording_of(other))
    return marks_of(one) == marks_of(other) and not reordered


def question_of(
    fields: dict[str, Any], around: Around, settings: SemanticSettings
) -> Question | None:
    """The question; None if the last turn is not a single text of the user of suitable length."""
    parts = _split(fields)
    if parts is None:
        return None
    text, rest = parts
    if not settings.min_chars <= len(text.strip()) <= settings.max_chars:
        return None
    bucket = key_of(rest, around._replace(rules=(*around.rules, marks_of(text))))
    tenant = key_of({}, Around(around.tenant, "", "", (), (), ()))
    if bucket is None or tenant is None:
        return None
    return Question(text, tenant, bucket, wording_of(text))


def _digest(words: list[str]) -> bytes:
    return hashlib.blake2b("\0".join(words).encode(), digest_size=_WORDING_BYTES).digest()


def _split(fields: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The text of the last turn, and the request without it."""
    name = "input" if "input" in fields else "messages"
    turns = fields.get(name)
    if isinstance(turns, str) and name == "input":
        return turns, {**fields, name: None}
    if not isinstance(turns, list) or not turns:
        return None
    last = turns[-1]
    if not isinstance(last, dict) or last.get("role") != "user" or "images" in last:
        return None
    content = last.get("content")
    if isinstance(content, str):
        return content, {**fields, name: [*turns[:-1], {**last, "content": None}]}
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return None
    (part,) = content
    text = part.get("text")
    if part.get("type") not in _TEXT_TYPES or not isinstance(text, str):
        return None
    turn = {**last, "content": [{**part, "text": None}]}
    return text, {**fields, name: [*turns[:-1], turn]}
