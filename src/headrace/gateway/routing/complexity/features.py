"""The features of a request: hashed words and pairs of words, and a few counts."""

from __future__ import annotations

import math
import re
import zlib
from itertools import pairwise

from headrace.gateway.routing.complexity.view import has_code

BUCKETS = 4096
"""Number of hash buckets for words and pairs. More would hardly reduce collisions in a vocabulary
of some thousands, and the weights are part of the package."""

# Requests differ in how they begin and end; what lies between is mostly material.
_HEAD_WORDS = 120
_TAIL_WORDS = 60
_MOST_CHARS = 4000
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[^\w\s]")
COUNTS = ("words", "numbers", "marks", "questions", "clauses", "lines", "code")


def counts_of(text: str) -> tuple[float, ...]:
    """The counts in the order of COUNTS, each roughly between 0 and 1."""
    text = text[:_MOST_CHARS]
    words = len(text.split()) or 1
    return (
        min(1.0, math.log1p(words) / 6.0),
        min(1.0, sum(char.isdigit() for char in text) / (4.0 * words) * 4.0),
        min(1.0, sum(text.count(sign) for sign in "=+*/^<>{}[]()\\") / words),
        min(1.0, text.count("?") / 4.0),
        min(1.0, (text.count(",") + text.count(";") + text.count(" and ")) / 8.0),
        min(1.0, text.count("\n") / 12.0),
        1.0 if has_code(text) else 0.0,
    )


def buckets_of(text: str) -> set[int]:
    """The buckets of the words and pairs in a text; how often they occur does not matter."""
    words = _WORD.findall(text[:_MOST_CHARS].lower())
    if len(words) > _HEAD_WORDS + _TAIL_WORDS:
        words = words[:_HEAD_WORDS] + words[-_TAIL_WORDS:]
    # The size of a number does not matter, only that there is one.
    words = ["0" if word.isdigit() else word for word in words]
    buckets = {_bucket(word) for word in words}
    buckets.update(_bucket(f"{word} {following}") for word, following in pairwise(words))
    return buckets


def _bucket(text: str) -> int:
    return zlib.crc32(text.encode(errors="replace")) % BUCKETS
