"""Text that stands more than once in the same text."""

from __future__ import annotations

import re

_UNIT = re.compile(r"[A-Za-z0-9_]+|[^\sA-Za-z0-9_]")
_RUN_UNITS = 24
"""Shorter runs repeat in code, tables and JSON without being superfluous."""


def repeated_characters(text: str) -> int:
    """Characters of runs of words that have stood in the text before."""
    units = [(match.group(), match.start(), match.end()) for match in _UNIT.finditer(text)]
    seen: dict[tuple[str, ...], int] = {}
    repeated, end = 0, 0
    for at in range(len(units) - _RUN_UNITS + 1):
        run = tuple(one[0] for one in units[at : at + _RUN_UNITS])
        first = seen.setdefault(run, at)
        if at - first >= _RUN_UNITS and len(set(run)) > _RUN_UNITS // 4:
            start, stop = units[at][1], units[at + _RUN_UNITS - 1][2]
            repeated += max(0, stop - max(start, end))
            end = max(end, stop)
    return repeated
