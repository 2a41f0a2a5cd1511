"""Values out of JSON that anybody may have written: what is not of its kind counts as not there.

`decode` reads almost valid JSON. Two faults are common and hurt nobody: half of a surrogate pair,
where a server in JavaScript or Java cut a text in two, and NaN or Infinity among log probabilities.
The one becomes U+FFFD, the others null. What is damaged otherwise stays damaged.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from headrace.protocol.dialects.json_values import mapping, objects, text

__all__ = ["DIALECT", "add_missing", "left_over", "mapping", "objects", "text", "whole"]

DIALECT = "openai-chat"


def whole(value: Any) -> int | None:
    """An integer as such, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def left_over(value: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The fields of an object that are not `known` and say something."""
    return {
        name: field
        for name, field in value.items()
        if name not in known and field is not None and field != "" and field != []
    }


def add_missing(target: dict[str, Any], more: dict[str, Any]) -> None:
    """Put in what is not there yet, also inside of objects."""
    for name, value in more.items():
        if name not in target:
            target[name] = value
        elif isinstance(target[name], dict) and isinstance(value, dict):
            add_missing(target[name], value)


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
