"""From a regular expression of JSON Schema (ECMA-262) to the syntax that llguidance reads.

Both write most expressions alike. What they read differently is rewritten so that it means here
what it means there, or is refused; nothing is passed on that would mean something else.
"""

from __future__ import annotations

import re

_SPACES = r"\t-\r \u{00a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}"
_DOT = r"[^\n\r\u{2028}\u{2029}]"
_ALIKE = frozenset("dDwWnrtfvuxpP")
"""Letters that mean the same behind a backslash in both."""
_DOUBLED_IN_CLASS = "&-~"
"""Doubled in a class, these are operators on sets there, and characters in ECMA-262."""


_UNWRITTEN = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
_NUMBERED = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\})")


def unwritten(text: str) -> bool:
    """Whether a text has characters that JSON writes as \\u00XX only, which no answer has.

    With that escape allowed, a property could be named twice in two spellings.
    """
    return _UNWRITTEN.search(text) is not None


class PatternError(ValueError):
    """An expression that cannot be written so that it means the same; the text says why."""


def rewritten(pattern: str) -> str:
    """The expression as llguidance reads it. Raises PatternError.

    What is wrong in both syntaxes (a bracket that is not closed) is left for llguidance to refuse.
    """
    out: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
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
        elif character == "(" and pattern.startswith("(?", at):
            _check_group(pattern, at)
            out.append(character)
            at += 1
        else:
            out.append(_DOT if character == "." else character)
            at += 1
    return "".join(out)


def _escape(pattern: str, at: int) -> tuple[str, int]:
    """What the escape at a backslash becomes, and where the text goes on."""
    if at + 1 == len(pattern):
        raise PatternError("it ends with a backslash")
    letter = pattern[at + 1]
    after = at + 2
    if letter == "s":
        return f"[{_SPACES}]", after
    if letter == "S":
        return f"[^{_SPACES}]", after
    # A letter and braces: a repeated letter in ECMA-262, a character's number there.
    braced = letter == "x" and pattern.startswith("{", after)
    if braced or (letter.isalnum() and letter not in _ALIKE):
        raise PatternError(f"it has \\{letter}, which is not supported")
    return f"\\{letter}", after


_CONTROL = "it has a control character that no answer has"


def _is_unwritten(pattern: str, at: int) -> bool:
    """Whether there is a character at `at`, or its escape, that no answer has."""
    if pattern[at] != "\\":
        return unwritten(pattern[at])
    if pattern.startswith("\\v", at):
        return True
    numbered = _NUMBERED.match(pattern, at)
    if numbered is None:
        return False
    number = int(next(filter(None, numbered.groups())), 16)
    return number < 128 and unwritten(chr(number))


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
    while at < len(pattern) and pattern[at] != "]":
        character = pattern[at]
        if _is_unwritten(pattern, at):
            controls += 1
        elif character != "-":
            others += 1
        if character == "\\":
            text, at = _escape(pattern, at)
            out.append(text)
            continue
        doubled = character in _DOUBLED_IN_CLASS and pattern.startswith(character * 2, at)
        if doubled and character == "-":
            raise PatternError("it has -- in a class; write \\- for the character")
        out.append(f"\\{character}" if character == "[" or doubled else character)
        at += 1
    if at == len(pattern):
        raise PatternError("it has a class that is not closed")
    # llguidance omits such a character where it stands alone, and reads the rest.
    if controls and not others and not negated:
        raise PatternError(_CONTROL)
    return "".join((*out, "]")), at + 1


def _check_group(pattern: str, at: int) -> None:
    """Raises PatternError for a group that is not plain, or has a name."""
    if pattern.startswith("(?:", at):
        return
    if pattern.startswith("(?<", at) and pattern[at + 3 : at + 4] not in ("=", "!", ""):
        return
    raise PatternError(
        f"it has {pattern[at : at + 4]!r}; looking ahead and behind, and flags, are not supported"
    )
