"""Which script most letters of a text are of."""

from __future__ import annotations

from collections import Counter

# First code point, last, name; Unicode 16, the blocks of letters in common use.
_BLOCKS = (
    (0x0041, 0x024F, "Latin"),
    (0x0370, 0x03FF, "Greek"),
    (0x0400, 0x052F, "Cyrillic"),
    (0x0590, 0x05FF, "Hebrew"),
    (0x0600, 0x06FF, "Arabic"),
    (0x0900, 0x097F, "Devanagari"),
    (0x0E00, 0x0E7F, "Thai"),
    (0x3040, 0x30FF, "Japanese"),
    (0x3400, 0x9FFF, "Chinese"),
    (0xAC00, 0xD7AF, "Korean"),
)
_KANA_SHARE = 0.1


def script_of(text: str) -> str | None:
    """By its letters; None where it has none of these. Chinese with kana is Japanese."""
    counts = Counter(
        next((name for low, high, name in _BLOCKS if low <= ord(mark) <= high), None)
        for mark in text
        if mark.isalpha()
    )
    del counts[None]
    if not counts:
        return None
    if counts["Japanese"] >= _KANA_SHARE * (counts["Chinese"] + counts["Japanese"]) > 0:
        counts["Japanese"] += counts.pop("Chinese", 0)
    return counts.most_common(1)[0][0]
