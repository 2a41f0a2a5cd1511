"""The pages people read, and what is in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "headrace"

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def page(name: str) -> str:
    """The text of a page of docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """`text` without its blocks of code and its comments."""
    return _COMMENT.sub("", _FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        repeated = sum(one == name or one.startswith(f"{name}-") for one in found)
        found.add(f"{name}-{repeated}" if name in found else name)
    return found


def part(text: str, mark: str) -> str:
    """What lies between `<!-- mark -->` and the next `<!-- end -->`."""
    found = re.search(rf"<!-- {mark} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None, f"there is no part {mark}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Cells of the table rows of `text`, heads and rules left out."""
    lines = text.splitlines()
    body = [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("| ") and not after.startswith("|--")
    ]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in body]
