"""A text with other words where something was found."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.gateway.guards.guard import Match
from headrace.gateway.guards.passage import Kind


def replaced_text(text: str, matches: Sequence[Match], base: int = 0) -> str:
    """text: what stands from `base` on; matches: in order and without overlaps, counted as `base`
    is. One that begins before the text, or ends behind it, is replaced where it begins."""
    pieces: list[str] = []
    at = base
    end = base + len(text)
    for match in matches:
        if match.end <= base or match.start >= end:
            continue
        pieces.append(text[at - base : max(0, match.start - base)])
        if match.start >= base:
            pieces.append(match.replacement)
        at = min(end, match.end)
    pieces.append(text[at - base :])
    return "".join(pieces)


def fitting(matches: Sequence[Match], kind: Kind) -> list[Match]:
    """With replacements as they have to stand there: within JSON text a quote is escaped."""
    if kind != "arguments":
        return list(matches)
    return [
        one._replace(replacement=msgspec.json.encode(one.replacement)[1:-1].decode())
        for one in matches
    ]


def summary(matches: Sequence[Match]) -> str:
    """What was found, without the found text: "email, credit_card"."""
    return ", ".join(dict.fromkeys(one.label for one in matches))
