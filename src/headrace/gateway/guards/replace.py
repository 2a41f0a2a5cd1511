"""A text with other words where something was found."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from headrace.gateway.guards.guard import Match


def replaced_text(text: str, matches: Sequence[Match], base: int = 0) -> str:
    """The text with its matches replaced.

    text: the part from `base` on; matches: in order and without overlaps, counted as `base` is. One
    that begins before the text, or ends behind it, is replaced where it begins.
    """
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


def by_parts(
    matches: Sequence[Match], bounds: Sequence[int]
) -> Iterator[tuple[int, Sequence[Match]]]:
    """For adjacent parts: where each begins, and the matches that reach into it.

    matches: in order and without overlaps. bounds: where parts begin, and where the last one ends.
    """
    first = 0
    for base, end in itertools.pairwise(bounds):
        while first < len(matches) and matches[first].end <= base:
            first += 1
        behind = first
        while behind < len(matches) and matches[behind].start < end:
            behind += 1
        yield base, matches[first:behind]


def fitting(matches: Sequence[Match]) -> list[Match]:
    """The matches with replacements escaped for JSON text."""
    return [
        match._replace(replacement=msgspec.json.encode(match.replacement)[1:-1].decode())
        for match in matches
    ]


def merged(matches: Iterable[Match]) -> list[Match]:
    """The matches in order, overlapping ones merged."""
    found: list[Match] = []
    for match in sorted(matches):
        if found and match.start < found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, match.end))
        else:
            found.append(match)
    return found


def summary(matches: Sequence[Match]) -> str:
    """What was found, without the found text: "email, credit_card"."""
    return ", ".join(dict.fromkeys(match.label for match in matches))
