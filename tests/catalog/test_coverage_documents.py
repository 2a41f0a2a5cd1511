"""The background documents, where they are at hand, line by line against the coverage."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.catalog.coverage import Coverage, Document, Item, load_coverage

COVERAGE = load_coverage()
OWN = [one for one in COVERAGE.documents.values() if not one.repeats]
REPEATING = [one for one in COVERAGE.documents.values() if one.repeats]
# Lines that say nothing: rules, and what stands between the head of a table and its rows.
SILENT = re.compile(r"[|\-: ]*")
FENCE = re.compile(r"```")
FORMULA = re.compile(r"[\w ·]+ = [^.]*[+×·/−]")
NUMBERED_HEADING = re.compile(r"\d+\.? \S")
NUMBERED = re.compile(r" +\d+\. ")


class Marked(NamedTuple):
    """A line that its marks give a kind to."""

    number: int
    kinds: tuple[str, ...]
    begins: bool


@pytest.fixture(scope="module")
def texts(shared_assets: Path) -> dict[str, list[str]]:
    """The lines of every document by its id."""
    folder = shared_assets.parent / "background"
    if not folder.is_dir():
        pytest.skip(f"needs the shared test assets: the background documents (looked at {folder})")
    read = [path.read_bytes() for path in sorted(folder.glob("*.txt"))]
    by_sum = {hashlib.sha256(text).hexdigest(): text.decode("utf-8") for text in read}
    assert set(by_sum) == {one.sha256 for one in COVERAGE.documents.values()}
    return {one.id: by_sum[one.sha256].splitlines() for one in COVERAGE.documents.values()}


@pytest.mark.parametrize("document", OWN, ids=lambda one: one.id)
def test_every_line_has_an_item(document: Document, texts: dict[str, list[str]]) -> None:
    lines = texts[document.id]
    assert len(lines) == document.lines
    assert missing_lines(COVERAGE, document.id, lines) == []
    for one in COVERAGE.of(document.id):
        assert lines[one.first - 1].strip() and lines[one.last - 1].strip(), one.id


@pytest.mark.parametrize("document", OWN, ids=lambda one: one.id)
def test_marked_lines_have_an_item_of_their_kind(
    document: Document, texts: dict[str, list[str]]
) -> None:
    items = COVERAGE.of(document.id)
    found = 0
    for number, kinds, begins in marked(document, texts[document.id], items):
        [item] = [one for one in items if one.first <= number <= one.last]
        assert item.kind in kinds, f"{item.id} line {number}"
        assert not begins or item.first == number, f"{item.id} begins before line {number}"
        found += 1
    assert found > 10 or document.id == "speed-article"


@pytest.mark.parametrize("document", REPEATING, ids=lambda one: one.id)
def test_what_is_repeated_is_the_same(document: Document, texts: dict[str, list[str]]) -> None:
    again, original = texts[document.id], texts[document.repeats]
    found = []
    for one in COVERAGE.of(document.id):
        text = _bare("".join(original[one.first - 1 : one.last]))
        for number in one.repeated:
            assert _bare(again[number - 1]) in text, f"{one.id}: line {number}"
            found.append(number)
    assert len(set(found)) == len(found)
    said = {number for number, line in enumerate(again, 1) if not SILENT.fullmatch(line)}
    assert said == set(found)


def test_a_line_without_an_item_is_told() -> None:
    text = ["## A", "", "| b |", "|---|", "| c |", "---", "d"]
    item = Item(
        id="x-1", document="x", kind="section", name="A", section="A", topic="metrics", first=1,
        last=3, does="knows", rows=("r",),
    )  # fmt: skip
    document = Document(id="x", lines=7, sha256="", prefix="x")
    coverage = Coverage({"x": document}, {}, (item,))
    assert missing_lines(coverage, "x", text) == [5, 7]
    kinds = [(one.number, one.kinds[0]) for one in marked(document, text, (item,))]
    assert kinds == [(1, "section"), (3, "table"), (5, "table row")]


def missing_lines(coverage: Coverage, document: str, lines: list[str]) -> list[int]:
    """Lines that say something and that no item has."""
    has = {number for one in coverage.of(document) for number in range(one.first, one.last + 1)}
    return [
        number
        for number, line in enumerate(lines, 1)
        if number not in has and not SILENT.fullmatch(line)
    ]


def marked(document: Document, lines: list[str], items: tuple[Item, ...]) -> Iterator[Marked]:
    """Headings, rows of tables, code, checklists and formulas, as far as a document marks them."""
    markdown = any(line.startswith("## ") for line in lines)
    fenced, row, pitfalls = False, False, False
    # Without marks, a sentence that stands right under a table looks like a row of it.
    rows = ("table row",) if markdown else ("table row", "text", "decision tree", "formula")
    heads = {one.first for one in items if one.kind == "table"}
    for number, line in enumerate(lines, 1):
        if FENCE.match(line):
            fenced = not fenced
        if fenced or FENCE.match(line):
            yield Marked(number, ("code", "decision tree"), False)
            continue
        if markdown:
            row = line.startswith("|")
            heading = line.startswith("#")
            head = row and not lines[number - 2].startswith("|")
        else:
            heading = NUMBERED_HEADING.match(line) is not None and len(line) < 60
            head = number in heads
            row = bool(line.strip()) and (head or row)
            pitfalls = line.endswith("Pitfalls") if heading else pitfalls
        if heading:
            yield Marked(number, ("section",), True)
        elif row and not SILENT.fullmatch(line):
            yield Marked(number, ("table",) if head else rows, True)
        elif line.startswith("- [ ]"):
            yield Marked(number, ("checklist item",), True)
        elif pitfalls and NUMBERED.match(line):
            yield Marked(number, ("pitfall",), True)
        elif FORMULA.match(line):
            yield Marked(number, ("formula", "code"), False)


def _bare(line: str) -> str:
    """Without marks of tables and spaces; the condensed text lost one name of a provider."""
    return re.sub(r"[\s|*—]", "", line).replace("Google", "")
