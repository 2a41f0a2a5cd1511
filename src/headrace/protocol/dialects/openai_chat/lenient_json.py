"""A decoder for almost valid JSON.

Two faults are common and hurt nobody: half of a surrogate pair, where a server in JavaScript or
Java cut a text in two, and NaN or Infinity among log probabilities. The one becomes U+FFFD, the
others null. What is damaged otherwise stays damaged.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError)
"""What `decode` raises for text that is not JSON."""


def decode(text: bytes | str) -> Any:
    """The value, strictly first; raises one of NOT_JSON with the strict decoder's words."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        if not _may_be_mended(text):
            raise
        try:
            value = json.loads(text, parse_constant=lambda _: None)
            again = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
            return msgspec.json.decode(again.decode("utf-16", "replace"))
        except NOT_JSON:
            raise error from None


def _may_be_mended(text: bytes | str) -> bool:
    if isinstance(text, bytes):
        return b"\\ud" in text.lower() or b"NaN" in text or b"Infinity" in text
    return "\\ud" in text.lower() or "NaN" in text or "Infinity" in text
