"""What the classifier sees of a request: words and pairs of words, hashed, and a few counts."""

from __future__ import annotations

import math
import re
import zlib
from itertools import pairwise

from headrace.gateway.routing.complexity.view import has_code

BUCKETS = 4096
"""Of hashed words and pairs. More hardly collide less with a vocabulary of some thousands, and the
weights have to be shipped."""

# Requests are told by how they begin and end; what lies between is mostly material.
_HEAD_WORDS = 120
_TAIL_WORDS = 60
_MOST_CHARS = 4000
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[^\w\s]")
COUNTS = ("words", "numbers", "marks", "questions", "clauses", "lines", "code")


def counts_of(text: str) -> tuple[float, ...]:
    """In the order of COUNTS, each about between 0 and 1."""
    text = text[:_MOST_CHARS]
    words = len(text.split()) or 1
    return (
        min(1.0, math.log1p(words) / 6.0),
        min(1.0, sum(one.isdigit() for one in text) / (4.0 * words) * 4.0),
        min(1.0, sum(text.count(one) for one in "=+*/^<>{}[]()\\") / words),
        min(1.0, text.count("?") / 4.0),
        min(1.0, (text.count(",") + text.count(";") + text.count(" and ")) / 8.0),
        min(1.0, text.count("\n") / 12.0),
        1.0 if has_code(text) else 0.0,
    )


def buckets_of(text: str) -> set[int]:
    """Of the words and pairs that are in it; how often does not matter."""
    words = _WORD.findall(text[:_MOST_CHARS].lower())
    if len(words) > _HEAD_WORDS + _TAIL_WORDS:
        words = words[:_HEAD_WORDS] + words[-_TAIL_WORDS:]
    # A number's size says nothing here, only that there is one.
    words = ["0" if one.isdigit() else one for one in words]
    found = {_bucket(one) for one in words}
    found.update(_bucket(f"{one} {other}") for one, other in pairwise(words))
    return found


def _bucket(text: str) -> int:
    return zlib.crc32(text.encode(errors="replace")) % BUCKETS
