"""Text of a stranger's file, so that printing it does nothing to a terminal."""

from __future__ import annotations


def visible(text: str) -> str:
    """`text` with control characters, but for line breaks and tabs, as Python writes them."""
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() or mark in "\n\t" else repr(mark)[1:-1] for mark in text
    )
