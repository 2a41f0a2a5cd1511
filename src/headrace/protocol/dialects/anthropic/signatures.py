"""Signatures of other vendors in a thinking block, whose `signature` is Anthropic's own.

    headrace:<origin>[;summary][;id=<id>]:<value>

A signature of Anthropic's is written as it is, unless it looks like one of these (it came from
another gateway): then it is carried like a foreign one.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from headrace.protocol.dialects.anthropic.values import NAME
from headrace.protocol.neutral.part import Signature, Thinking

_PREFIX = "headrace:"
_ID = "id="


class Carried(NamedTuple):
    """The contents of a block's `signature` (or a redacted block's `data`)."""

    signature: Signature | None
    summary: bool = False
    id: str | None = None


def write_signature(part: Thinking) -> str:
    """The signature for a client; "" if there is nothing to return."""
    signature = part.signature
    if signature is None and part.id is None:
        return ""
    if signature is not None and signature.origin == NAME:
        plain = not (part.summary or part.id or signature.value.startswith(_PREFIX))
        if plain:
            return signature.value
    origin, value = (signature.origin, signature.value) if signature else ("", "")
    words = [quote(origin, safe="")]
    if part.summary:
        words.append("summary")
    if part.id is not None:
        words.append(_ID + quote(part.id, safe=""))
    return f"{_PREFIX}{';'.join(words)}:{value}"


def read_signature(text: str) -> Carried:
    """The signature that a client returns."""
    if not text:
        return Carried(None)
    if not text.startswith(_PREFIX):
        return Carried(Signature(NAME, text))
    head, colon, value = text.removeprefix(_PREFIX).partition(":")
    if not colon:
        return Carried(Signature(NAME, text))
    origin, *words = head.split(";")
    ids = [unquote(word.removeprefix(_ID)) for word in words if word.startswith(_ID)]
    signature = Signature(unquote(origin), value) if origin else None
    return Carried(signature, "summary" in words, ids[0] if ids else None)
