"""From llama.cpp's notation of grammars (GBNF) to Lark, by llguidance's converter.

What that converter would read as something else is written in a way it cannot misread, or refused.
"""

from __future__ import annotations

import re

from headrace.errors import RequestError
from headrace.structured.limits import GRAMMAR_TOO_LARGE, INVALID_GRAMMAR

MAX_BYTES = 1 << 15
"""Of a text: converting takes time in proportion to the square of the number of rules."""
_MAX_REASON_CHARS = 200

_TOKEN = re.compile(r'#[^\n]*|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]', re.DOTALL)
_NUMBERED = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)
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
    except RequestError:
        raise
    except Exception as error:  # the converter raises whatever comes up, plain Exceptions too
        reason = " ".join(str(error).split())[:_MAX_REASON_CHARS]
        raise _invalid(param, f"cannot be read as GBNF: {reason or type(error).__name__}") from None


def _plain(token: str, param: str) -> str:
    """A text or class with characters in place of their numbers; comments are omitted."""
    if token.startswith("#"):
        return ""
    if token.startswith("["):
        for operator in _OPERATORS:
            if operator in token:
                raise _invalid(param, f"has {operator} in a class; write it with single characters")
    return _NUMBERED.sub(lambda escape: _character(escape, param), token)


def _character(escape: re.Match[str], param: str) -> str:
    digits = next(filter(None, escape.groups()), None)
    if digits is None:
        return escape[0]
    number = int(digits, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise _invalid(param, f"has {escape[0]}, which is not the number of a character")
    character = chr(number)
    if character in '"\\[]':
        return f"\\{character}"
    if not character.isprintable() or character in "^-/&~#":
        raise _invalid(param, f"has {escape[0]}; write the character itself")
    return character


def _invalid(param: str, why: str) -> RequestError:
    return RequestError(f"{param} {why}", param=param, code=INVALID_GRAMMAR)
