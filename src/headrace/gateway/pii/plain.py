"""The same text with the writings of digits, spaces and hyphens that detectors know."""

from __future__ import annotations

_SPACES = "\u00a0\u2002\u2003\u2005\u2007\u2009\u200a\u202f\u3000"
_HYPHENS = "\u2010\u2011\u2012\u2013\u2212\uff0d"
_FULL_WIDTH = {0xFF01 + at: 0x21 + at for at in range(94)}
_PLAIN = {
    **_FULL_WIDTH,
    **dict.fromkeys(map(ord, _SPACES), ord(" ")),
    **dict.fromkeys(map(ord, _HYPHENS), ord("-")),
}


def plain(text: str) -> str:
    """The text with the same length, so that positions are the same."""
    return text if text.isascii() else text.translate(_PLAIN)
