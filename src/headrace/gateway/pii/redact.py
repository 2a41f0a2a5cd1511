"""A text without what was found in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.gateway.pii.find import find
from headrace.gateway.pii.span import KINDS, PiiKind, Span


def redact(text: str, kinds: Collection[PiiKind] = KINDS) -> str:
    """Each finding replaced by its kind: [EMAIL], [CREDIT_CARD]. Doing it again changes nothing."""
    return without(text, find(text, kinds))


def without(text: str, spans: Sequence[Span]) -> str:
    """As `redact`, for given spans: in the order of the text and without overlaps."""
    if not spans:
        return text
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += (text[at : span.start], mark(span.kind))
        at = span.end
    pieces.append(text[at:])
    return "".join(pieces)


def mark(kind: str) -> str:
    """The replacement of a match."""
    return f"[{kind.upper()}]"
