"""From a regular expression of JSON Schema (ECMA-262) to the syntax that llguidance reads.

Both write most expressions alike. What they read differently is rewritten so that it means here
what it means there, or is refused; nothing is passed on that would mean something else.
"""

from __future__ import annotations

import re

_SPACES = r"\t-\r \u{00a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}"
_NOT_SPACES = (
    r"\u{0}-\u{8}\u{e}-\u{1f}!-\u{9f}\u{a1}-\u{167f}\u{1681}-\u{1fff}\u{200b}-\u{2027}"
    r"\u{202a}-\u{202e}\u{2030}-\u{205e}\u{2060}-\u{2fff}\u{3001}-\u{fefe}\u{ff00}-\u{10ffff}"
)
"""All other characters. A class within a class would be read otherwise a second time."""
_DOT = r"[^\n\r\u{2028}\u{2029}]"
_IN_CLASS = {r"\s": _SPACES, r"\S": _NOT_SPACES}
_ALIKE = frozenset("dDwWnrtfvuxpP")
"""Letters that mean the same behind a backslash in both."""
_LETTERS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B}
_DOUBLED_IN_CLASS = "&-~"
"""Doubled in a class, these are operators on sets there, and characters in ECMA-262."""


_UNWRITTEN = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
_NUMBERED = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\})")
_MOST_NUMBERED = len(r"\u{10ffff}")
_PROPERTY = re.compile(r"\\[pP]\{[^{}]*\}")
_REPETITION = re.compile(
    r"(?:[*+?]|\{(?P<least>[0-9]{1,9})(?:,(?P<most>[0-9]{0,9}))?\})\??", re.ASCII
)
_GROUP = re.compile(r"\((?:\?:|\?<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))")


def unwritten(text: str) -> bool:
    """Whether a text has characters that JSON writes as \\u00XX only, which no answer has.

    With that escape allowed, a property could be named twice in two spellings.
    """
    return _UNWRITTEN.search(text) is not None


class PatternError(ValueError):
    """An expression that cannot be written so that it means the same; the text says why."""


class MalformedPatternError(PatternError):
    """A text that is not an expression."""


def rewritten(pattern: str) -> str:
    """The expression as llguidance reads it; it reads the result alike. Raises PatternError."""
    out: list[str] = []
    at = depth = 0
    is_term = False  # whether what was read last may be repeated
    while at < len(pattern):
        character = pattern[at]
        if character in "*+?{":
            after = _repetition(pattern, at, is_term)
            out.append(pattern[at:after])
            at, is_term = after, False
            continue
        is_term = character not in "(|^$"
        depth += (character == "(") - (character == ")")
        if depth < 0:
            raise MalformedPatternError("it closes a group that is not open")
        if character == "\\":
            if _is_unwritten(pattern, at):
                raise PatternError(_CONTROL)
            text, at = _escape(pattern, at)
            out.append(text)
        elif unwritten(character):
            raise PatternError(_CONTROL)
        elif character == "[":
            text, at = _class(pattern, at)
            out.append(text)
        elif character == "(":
            after = _group(pattern, at)
            out.append(pattern[at:after])
            at = after
        else:
            out.append(_DOT if character == "." else character)
            at += 1
    if depth:
        raise MalformedPatternError("it has a group that is not closed")
    return "".join(out)


def _repetition(pattern: str, at: int, is_term: bool) -> int:
    """Where the repetition that begins at a sign ends."""
    found = _REPETITION.match(pattern, at)
    if found is None:
        raise PatternError("it has { that begins no repetition; write \\{ for the character")
    if not is_term:
        raise MalformedPatternError(f"it has {found[0]!r} with nothing to repeat")
    if found["most"] and int(found["most"]) < int(found["least"]):
        raise MalformedPatternError(f"it has {found[0]!r}, whose numbers are out of order")
    return found.end()


def _escape(pattern: str, at: int) -> tuple[str, int]:
    """What the escape at a backslash becomes, and where the text goes on."""
    if at + 1 == len(pattern):
        raise MalformedPatternError("it ends with a backslash")
    letter = pattern[at + 1]
    after = at + 2
    written = _NUMBERED.match(pattern, at) or _PROPERTY.match(pattern, at)
    if written is not None:
        if 0xD800 <= (_number(written[0]) or 0) < 0xE000:
            raise PatternError("it has half of a surrogate pair; write the character itself")
        return written[0], written.end()
    if letter in "xu":
        raise MalformedPatternError(f"it has \\{letter} without the number of a character")
    if letter == "s":
        return f"[{_SPACES}]", after
    if letter == "S":
        return f"[^{_SPACES}]", after
    if letter.isalnum() and letter not in _ALIKE:
        raise PatternError(f"it has \\{letter}, which is not supported")
    return f"\\{letter}", after


_CONTROL = "it has a control character that no answer has"


def _is_unwritten(pattern: str, at: int) -> bool:
    """Whether there is a character at `at`, or its escape, that no answer has."""
    if pattern[at] != "\\":
        return unwritten(pattern[at])
    if pattern.startswith("\\v", at):
        return True
    number = _number(pattern[at : at + _MOST_NUMBERED])
    return number is not None and number < 128 and unwritten(chr(number))


def _number(escape: str) -> int | None:
    """Of the character that a text begins with the number of, written as an escape."""
    numbered = _NUMBERED.match(escape)
    return None if numbered is None else int(next(filter(None, numbered.groups())), 16)


def _class(pattern: str, at: int) -> tuple[str, int]:
    """What the class at a bracket becomes, and where the text goes on."""
    out = ["["]
    at += 1
    if pattern.startswith("^", at):
        out.append("^")
        at += 1
    if pattern.startswith("]", at):
        raise PatternError("it has a class without characters")
    negated, others, controls = len(out) > 1, 0, 0
    _check_ranges(pattern, at)
    while at < len(pattern) and pattern[at] != "]":
        character = pattern[at]
        if _is_unwritten(pattern, at):
            controls += 1
        elif character != "-":
            others += 1
        if character == "\\":
            text, after = _escape(pattern, at)
            out.append(_IN_CLASS.get(pattern[at:after], text))
            at = after
            continue
        doubled = character in _DOUBLED_IN_CLASS and pattern.startswith(character * 2, at)
        if doubled and character == "-":
            raise PatternError("it has -- in a class; write \\- for the character")
        out.append(f"\\{character}" if character == "[" or doubled else character)
        at += 1
    if at == len(pattern):
        raise MalformedPatternError("it has a class that is not closed")
    # llguidance omits such a character where it stands alone, and reads the rest.
    if controls and not others and not negated:
        raise PatternError(_CONTROL)
    return "".join((*out, "]")), at + 1


def _check_ranges(pattern: str, at: int) -> None:
    """Raises MalformedPatternError for a range that ends before it begins, of the class whose text
    is at `at`."""
    texts: list[str] = []
    while at < len(pattern) and pattern[at] != "]":
        end = _escape(pattern, at)[1] if pattern[at] == "\\" else at + 1
        texts.append(pattern[at:end])
        at = end
    index = 0
    while index + 2 < len(texts):
        is_range = texts[index + 1] == "-"
        if is_range:
            first, last = _code_point(texts[index]), _code_point(texts[index + 2])
            if first is not None and last is not None and first > last:
                raise MalformedPatternError("it has a range of characters that is out of order")
        index += 3 if is_range else 1


def _code_point(text: str) -> int | None:
    """Of a character or its escape; None for the escape of several."""
    if len(text) == 1:
        return ord(text)
    if (number := _number(text)) is not None:
        return number
    return _LETTERS.get(text[1]) if text[1].isalnum() else ord(text[1])


def _group(pattern: str, at: int) -> int:
    """Where the beginning of a group ends. Raises PatternError for one that is more than plain, or
    with a name."""
    found = _GROUP.match(pattern, at)
    if found is None:
        raise PatternError(
            f"it has {pattern[at : at + 4]!r}; looking ahead and behind, and flags, are not "
            "supported"
        )
    return found.end()
