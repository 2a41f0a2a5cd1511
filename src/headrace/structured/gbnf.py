"""From llama.cpp's notation of grammars (GBNF) to Lark, by llguidance's converter.

What that converter would read as something else is written in a way it cannot misread, or refused.
"""

from __future__ import annotations

import re

from headrace.errors import RequestError
from headrace.structured.limits import DEFAULT as LIMITS
from headrace.structured.limits import GRAMMAR_TOO_LARGE, INVALID_GRAMMAR

MAX_BYTES = 1 << 15
"""Of a text: converting takes time in proportion to the square of the number of rules."""
_MAX_REASON_CHARS = 200

_TOKEN = re.compile(r'#[^\n]*|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]', re.DOTALL)
_NUMBERED = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)
_CLASS_BETWEEN = '" ['
_OPERATORS = ("&&", "--", "~~")


def lark_of(text: str, param: str) -> str:
    """The grammar in Lark. Raises RequestError where it cannot be converted exactly."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise RequestError(
            f"{param} has more than {MAX_BYTES} bytes; shorten it",
            param=param,
            code=GRAMMAR_TOO_LARGE,
        )
    from llguidance.gbnf_to_lark import gbnf_to_lark

    plain = _TOKEN.sub(lambda token: _plain(token[0], param), text)
    try:
        return gbnf_to_lark(plain)
    except RecursionError:
        raise RequestError(
            f"{param} is nested too deep to be converted; at most {LIMITS.depth} brackets within "
            "each other are accepted. Name inner parts as rules and refer to them.",
            param=param,
            code=GRAMMAR_TOO_LARGE,
        ) from None
    except Exception as error:  # the converter raises whatever comes up, plain Exceptions too
        reason = " ".join(str(error).split())[:_MAX_REASON_CHARS]
        raise _invalid(param, f"cannot be read as GBNF: {reason or type(error).__name__}") from None


def _plain(token: str, param: str) -> str:
    """A text or class with characters in place of their numbers, where the converter reads these
    in another way; comments are omitted."""
    if token.startswith("#"):
        return ""
    if token.startswith("["):
        for operator in _OPERATORS:
            if operator in token:
                raise _invalid(param, f"has {operator} in a class; write it with single characters")
        return _NUMBERED.sub(lambda escape: _in_class(_character(escape, param), escape), token)
    pieces = [_NUMBERED.sub(lambda escape: _in_text(_character(escape, param), escape), token)]
    if _CLASS_BETWEEN not in pieces[0]:
        return pieces[0]
    return f"({pieces[0]})"


def _character(escape: re.Match[str], param: str) -> str | None:
    """The character of a number; None where the escape has none."""
    digits = next(filter(None, escape.groups()), None)
    if digits is None:
        return None
    number = int(digits, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise _invalid(param, f"has {escape[0]}, which is not the number of a character")
    return chr(number)


def _in_class(character: str | None, escape: re.Match[str]) -> str:
    if character is None:
        return escape[0]
    return f"\\x{ord(character):02X}" if ord(character) < 0x80 else character


def _in_text(character: str | None, escape: re.Match[str]) -> str:
    """A character that a text cannot have as it is becomes a class between two texts."""
    if character is None:
        return escape[0]
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return f'{_CLASS_BETWEEN}{_in_class(character, escape)}] "'


def _invalid(param: str, why: str) -> RequestError:
    return RequestError(f"{param} {why}", param=param, code=INVALID_GRAMMAR)
