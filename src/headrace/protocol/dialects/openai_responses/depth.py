"""The greatest depth of JSON that can be written again, a few levels deeper."""

from __future__ import annotations

from typing import Any

# Reader and writer both end at Python's recursion limit (1000), of which their callers take some.
MAX_DEPTH = 400


def too_deep(value: Any, text: bytes | str) -> bool:
    """Whether `value`, read from `text`, has more than MAX_DEPTH levels."""
    # Few brackets are not nested deeply: nearly all bodies end here.
    if isinstance(text, str):
        brackets = text.count("{") + text.count("[")
    else:
        brackets = text.count(b"{") + text.count(b"[")
    if brackets <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
