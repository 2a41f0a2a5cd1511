"""Bounds on the JSON in a body, checked before it is decoded.

A decoder makes an object of every value in one go, and nothing else of this process runs meanwhile:
arrays and objects take most (a body of 16 MiB may have eight million), names come next. Numbers and
strings take little, so token ids have no bound but the body's size. Marks are counted where they
stand; only a body that has too many is looked at again, without those in its strings.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.errors import RequestError

TOO_COMPLEX = "body_too_complex"

MAX_CONTAINERS = 2**16
"""Arrays and objects: far more than conversations and lists of prompts have."""

MAX_NAMES = 2**19
"""Names in objects: a bias for every token of the largest vocabularies is half of that."""


class _Bound(NamedTuple):
    marks: tuple[bytes, ...]
    limit: int
    what: str
    outside: re.Pattern[bytes]
    """Finds strings whole, and the marks that are in none."""


# A string ends with the body where its quote is missing: it is never looked at twice.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_BOUNDS = (
    _Bound(
        (b"[", b"{"),
        MAX_CONTAINERS,
        "arrays and objects",
        re.compile(_STRING + rb"|[\[{]", re.DOTALL),
    ),
    _Bound((b":",), MAX_NAMES, "names", re.compile(_STRING + rb"|:", re.DOTALL)),
)


def check_bounds(body: bytes | bytearray | memoryview) -> None:
    """Raise RequestError, code body_too_complex, for a body of too many values."""
    if len(body) <= MAX_CONTAINERS:
        return
    body = bytes(body)
    for bound in _BOUNDS:
        if sum(body.count(mark) for mark in bound.marks) > bound.limit and _exceeds(body, bound):
            raise RequestError(
                f"the body has more than {bound.limit} {bound.what}; send several requests with "
                "fewer each",
                code=TOO_COMPLEX,
            )


def check_utf8(body: bytes) -> None:
    """Raise RequestError for bytes that are not text: a reader that passes over values takes them
    for a string, and whoever is passed the body does not."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not valid UTF-8: {error}") from None


def _exceeds(body: bytes, bound: _Bound) -> bool:
    found = 0
    for one in bound.outside.finditer(body):
        found += body[one.start()] != 0x22  # a quote begins a string
        if found > bound.limit:
            return True
    return False
