"""Markdown for cards and lists: tables, and blocks of text that may hold anything."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

LINE_CHARACTERS = 118


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; columns of numbers stand to the right, whole ones with their thousands apart."""
    numeric = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(head))]
    lines = [list(head), ["---:" if right else "---" for right in numeric]]
    lines += [[cell(value) for value in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def paragraph(text: str) -> str:
    """`text` as lines of even length; a link or a number is not broken."""
    return textwrap.fill(
        " ".join(text.split()), LINE_CHARACTERS, break_long_words=False, break_on_hyphens=False
    )


def cell(value: object) -> str:
    """A value as it stands in a table; a bar would end the cell."""
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|")


def block(text: str, language: str = "") -> str:
    """`text` verbatim, behind a fence longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}"
