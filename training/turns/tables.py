"""The texts that turns are made of, which are data and not code: files below `texts`.

A file holds sections, each a name in brackets and then its lines; lines with "#" are notes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "texts"


@cache
def read_table(name: str) -> dict[str, list[str]]:
    """The lines of every section of a file, which callers must not change.

    Raises ValueError for a line before the first section.
    """
    path = FOLDER / f"{name}.txt"
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in path.read_text().split("\n"):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), [])
        elif current is None:
            raise ValueError(f"{path.name}: {line!r} stands before the first [section]")
        else:
            current.append(line)
    return sections


def words(section: str) -> list[str]:
    """The words of a section of names.txt, in their order."""
    return " ".join(read_table("names")[section]).split()
