"""Whether a text can have personal data at all: most have none, and are not looked through."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from headrace.gateway.pii.api_keys import PREFIXES
from headrace.gateway.pii.plain import plain
from headrace.gateway.pii.span import PiiKind

# Eight digits with a little between them, as every number of these kinds has. A backslash may stand
# before a slash that JSON escapes.
_EIGHT_DIGITS = re.compile(r"(?:[0-9][ ().\-/+\\]{0,6}){8}")
_IBAN_HEAD = re.compile(r"[A-Za-z]{2}[0-9]{2}")
_IP = re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]|:[0-9A-Fa-f]{0,4}:")


def _has_number(text: str) -> bool:
    return _EIGHT_DIGITS.search(text) is not None


_HINTS: Mapping[PiiKind, Callable[[str], bool]] = {
    "api_key": lambda text: any(one in text for one in PREFIXES),
    "email": lambda text: "@" in text,
    "iban": lambda text: _IBAN_HEAD.search(text) is not None,
    "credit_card": _has_number,
    "ip": lambda text: _IP.search(text) is not None,
    "us_ssn": _has_number,
    "phone": _has_number,
}


def may_have(text: str, kinds: Collection[PiiKind]) -> bool:
    """False only where `find` finds nothing. Of JSON as it is written, if no character in it is
    written as a \\u escape."""
    return bool(likely(plain(text), kinds))


def likely(looked_at: str, kinds: Collection[PiiKind]) -> set[PiiKind]:
    """The kinds that a plain text may contain."""
    answers: dict[Callable[[str], bool], bool] = {}
    found: set[PiiKind] = set()
    for kind in kinds:
        hint = _HINTS[kind]
        if hint not in answers:
            answers[hint] = hint(looked_at)
        if answers[hint]:
            found.add(kind)
    return found
