"""Ids of tool calls. Mistral requires nine letters and digits and refuses all others."""

from __future__ import annotations

import hashlib
import string

_LENGTH = 9
_DIGITS = string.digits + string.ascii_letters


def provider_id(id: str) -> str:
    """Mistral's own ids as they are; for others one that depends on nothing but the id.

    So a call and its result have the same in every request. Of a thousand calls in a conversation
    two collide once in 10^10 conversations.
    """
    if len(id) == _LENGTH and id.isascii() and id.isalnum():
        return id
    number = int.from_bytes(hashlib.sha256(id.encode(errors="replace")).digest()[:16])
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)
