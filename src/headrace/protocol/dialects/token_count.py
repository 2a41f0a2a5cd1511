"""Numbers of tokens in a provider's reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.protocol.dialects.json_values import read_object
from headrace.protocol.neutral.dialect import DamagedReplyError

# A thousand times the longest context there is. More is a fault of who counted, and must neither
# empty a budget nor overflow the sums of a ledger (64 bits, so some 2**30 answers of this size).
MOST_TOKENS = 2**31
# Digits of what may be one, for protocol buffers write 64-bit numbers as text.
_MOST_DIGITS = 19


def as_tokens(value: object, *, or_text: bool = False) -> int | None:
    """A number of tokens, also as a float without a fraction; None for what can be none: negative,
    a part of one, more than MOST_TOKENS, or no number. or_text: digits in a string count too."""
    if or_text and isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value) if len(value) <= _MOST_DIGITS else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def reported_tokens(
    usage: Mapping[str, Any], *names: str, or_text: bool = False
) -> tuple[int, ...] | None:
    """The named counts of a usage object, 0 for missing or null ones.

    None if none is reported, or if one is not a number of tokens: then nothing in the object is
    reliable, and an estimate is closer to the truth than a bill of 0 or millions.
    """
    counts = []
    is_reported = False
    for name in names:
        value = usage.get(name)
        tokens = 0 if value is None else as_tokens(value, or_text=or_text)
        if tokens is None:
            return None
        is_reported = is_reported or value is not None
        counts.append(tokens)
    return tuple(counts) if is_reported else None


def summed(counts: Iterable[int | None]) -> int | None:
    """The sum over several replies; None if one does not report it, or there is none."""
    total: int | None = None
    for tokens in counts:
        if tokens is None:
            return None
        total = (total or 0) + tokens
    return total


def read_count(body: bytes, name: str) -> int:
    """The field `name` of a JSON object; raises DamagedReplyError if it is not a count."""
    found = as_tokens(read_object(body).get(name))
    if found is None:
        raise DamagedReplyError(f"{name} is not a number of tokens")
    return found
