"""Expressions that a whole text matches, for strings that are written without quotes."""

from __future__ import annotations

from headrace.structured.json_schema.patterns import PatternError

_LABEL = "[A-Za-z0-9]{1,30}(-[A-Za-z0-9]{1,30})?"
_HOST = rf"{_LABEL}(\.{_LABEL}){{0,3}}"
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
_DATE = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP})"
)
_TIME = (
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_SEGMENT = "[A-Za-z0-9._~-]*"

FORMAT_PATTERNS = {
    "date": _DATE,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": "P([0-9]{1,6}[YMWD]|T[0-9]{1,6}[HMS]|[0-9]{1,6}DT[0-9]{1,6}[HMS])",
    "email": rf"[A-Za-z0-9_]{{1,20}}([.+-][A-Za-z0-9_]{{1,20}}){{0,2}}@{_HOST}",
    "hostname": _HOST,
    "ipv4": rf"({_BYTE}\.){{3}}{_BYTE}",
    "ipv6": "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "time": _TIME,
    "uri": rf"[a-z][a-z0-9+.-]{{0,15}}://{_HOST}(:[0-9]{{1,4}})?(/{_SEGMENT})*"
    r"(\?[A-Za-z0-9._~=&-]*)?(#[A-Za-z0-9._~-]*)?",
    "uuid": "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
"""Of each format of json_schema/walk.FORMATS: its common forms, which every checker accepts."""

_ANY = "(?s:.*)"


def anchored(pattern: str) -> str:
    """The expression of all texts in which a pattern is found; the pattern is as `rewritten` gives
    it. Raises PatternError for ^ and $ within groups."""
    return "|".join(f"({_alternative(each)})" for each in _alternatives(pattern))


def _alternative(pattern: str) -> str:
    begins, ends = pattern.startswith("^"), _ends(pattern)
    inner = pattern[begins : len(pattern) - ends]
    if any(character in "^$" for character in _outside_of_classes(inner)):
        raise PatternError("it has ^ or $ within")
    return f"{'' if begins else _ANY}({inner}){'' if ends else _ANY}"


def _ends(pattern: str) -> bool:
    """Whether $ is at the end, and not escaped."""
    stripped = pattern.removesuffix("$")
    return stripped != pattern and (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 0


def _alternatives(pattern: str) -> list[str]:
    """The alternatives outside of groups."""
    found, start, depth = [], 0, 0
    for at, character in _positions(pattern):
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            found.append(pattern[start:at])
            start = at + 1
    return [*found, pattern[start:]]


def _outside_of_classes(pattern: str) -> list[str]:
    return [character for _, character in _positions(pattern)]


def _positions(pattern: str) -> list[tuple[int, str]]:
    """Every character outside of classes and escapes, and where it stands."""
    found: list[tuple[int, str]] = []
    at, in_class = 0, False
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
            at += pattern.startswith("^", at + 1)
            at += pattern.startswith("]", at + 1)
        else:
            found.append((at, character))
        at += 1
    return found
