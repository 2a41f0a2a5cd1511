"""Telephone numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

# A run of digits in groups, from its first digit or what may stand before it.
_RUN = re.compile(r"[+(]?[0-9][0-9 ().\-/]*")
_GROUP = re.compile(r"[0-9]+")
_DATE = re.compile(r"[0-9]{1,2}([./-])[0-9]{1,2}\1[0-9]{2}|[0-9]{4}([./-])[0-9]{2}\2[0-9]{2}")
# Of E.164 with the country's number, and of what is written with a trunk's 0.
_LEAST_DIGITS, _MOST_DIGITS = 8, 15
_LEAST_NATIONAL, _MOST_NATIONAL = 9, 12
_MOST_GROUPS = 8
# Between two groups: a bracket, a space and a hyphen at most.
_MOST_BETWEEN = 3
# What every number begins with, so that groups of which none is one are passed over at once: a
# country's number behind + or 00, a trunk's 0, or three groups as North America has them. (?!00)
# and the digits that have to follow are what _taken wants at least.
_BEGINNING = re.compile(
    r"(?<![0-9])(?:(?:(?<=\+)[1-9]|0(?!00)[0-9])(?:[ ().\-/]{0,3}[0-9]){7}"
    r"|(?:1[ ().\-/]{1,3})?[2-9][0-9]{2}[ ().\-/]{1,3}[2-9][0-9]{2}[ ().\-/]{1,3}[0-9]{4}(?![0-9]))"
)


def phones(text: str) -> Iterator[tuple[int, int]]:
    """International ones (+49 30 1234567, 0049 ...), national ones with a leading 0 in groups (030
    1234567), and North American ones in groups ((212) 555-0123). A bare row of digits is none."""
    for run in _RUN.finditer(text):
        start, end = run.span()
        if end - start < _LEAST_DIGITS:
            continue
        before = text[start - 1 : start]
        if before.isalnum() or before in ("_", ".", "-", "/", "=", "#", "$", "€", "£"):
            continue
        after = text[end : end + 1]
        if text[end - 1].isdigit() and (after.isalpha() or after in ("_", ":", "%")):
            # 20:15, 5th: the last group is of something else
            end = start + len(text[start:end].rstrip("0123456789"))
        yield from _in_run(text, start, end)


def _in_run(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    while found := _BEGINNING.search(text, at, end):
        first = found.start()
        whole = _whole(text, first, end)
        taken = _taken(text, [text[one:after] for one, after in whole], first, start)
        if taken:
            opened = first - 1 if first > start and text[first - 1] in "+(" else first
            if opened > start and text[opened - 1] == "+":
                opened -= 1
            yield opened, whole[taken - 1][1]
        at = whole[max(taken, 1) - 1][1]


def _whole(text: str, first: int, end: int) -> list[tuple[int, int]]:
    """Groups from there on that may be of one number: near each other, and few."""
    found: list[tuple[int, int]] = []
    for group in islice(_GROUP.finditer(text, first, end), _MOST_GROUPS):
        if found:
            between = text[found[-1][1] : group.start()]
            if len(between) > _MOST_BETWEEN or "  " in between or ". " in between:
                break
        found.append(group.span())
    return found


def _taken(text: str, groups: list[str], first: int, start: int) -> int:
    """How many of the groups form a number; 0 if none do."""
    before = text[max(start, first - 2) : first]
    if "+" in before and groups[0][0] != "0":
        return _international(groups)
    if groups[0].startswith("00") and len(groups[0]) > 2 and groups[0][2] != "0":
        return _international([groups[0][2:], *groups[1:]])
    if groups[0] == "00" and len(groups) > 1:
        rest = _international(groups[1:])
        return rest and rest + 1
    if _DATE.match(text, first):
        return 0
    return _north_american(groups) or _national(groups)


def _international(groups: list[str]) -> int:
    """As many groups as E.164 allows."""
    digits = taken = 0
    for at, group in enumerate(groups, 1):
        if digits + len(group) > _MOST_DIGITS:
            break
        digits, taken = digits + len(group), at
    return taken if digits >= _LEAST_DIGITS else 0


def _north_american(groups: list[str]) -> int:
    """Area, exchange and line, with or without the 1 of the country."""
    lengths = [len(group) for group in groups[:4]]
    country = 1 if lengths[:1] == [1] and groups[0] == "1" else 0
    if lengths[country : country + 3] != [3, 3, 4]:
        return 0
    area, exchange, _ = groups[country : country + 3]
    if area[0] in "01" or exchange[0] in "01":
        return 0
    return country + 3


def _national(groups: list[str]) -> int:
    """A number with the trunk 0 that is omitted after a country code."""
    if groups[0][0] != "0" or groups[0].startswith("00") or len(groups[0]) < 2:
        return 0
    digits = taken = 0
    for at, group in enumerate(groups, 1):
        if digits + len(group) > _MOST_NATIONAL:
            break
        digits, taken = digits + len(group), at
    return taken if digits >= _LEAST_NATIONAL and taken > 1 else 0
