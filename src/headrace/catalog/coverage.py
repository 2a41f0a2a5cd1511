"""What the background documents hold, item by item, and what carries each here.

The documents themselves are not part of the package. An item is a heading, a table row, a formula,
a block of code, a pitfall, or a passage of them, by its lines and a short name; it has one answer.
Whether commands and tests that answers name are there is for tests to see: this room knows neither.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from headrace.catalog.catalog import DATA, Catalog
from headrace.catalog.rows import KINDS as ROW_KINDS
from headrace.errors import CatalogError

Kind: TypeAlias = Literal[
    "section", "table", "table row", "formula", "code", "decision tree", "checklist item",
    "pitfall", "text", "reference",
]  # fmt: skip
Answer: TypeAlias = Literal["rows", "command", "test", "waits_for", "rejected"]
ITEM_KINDS: tuple[Kind, ...] = get_args(Kind)
ANSWERS: tuple[Answer, ...] = get_args(Answer)
FILE = DATA / "coverage.toml"


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One background document.

    sha256: of its file, so that line numbers mean something. prefix: of the ids of its items.
    repeats: id of the document whose text this one says again; such a one has no items of its own.
    """

    id: str
    lines: int
    sha256: str
    prefix: str = ""
    repeats: str = ""


class Work(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something to be built that items wait for. command: what there will be then."""

    name: str
    command: str
    does: str


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An item as the file has it."""

    id: str
    kind: Kind
    name: str
    last: int | None = None
    repeated: tuple[int, ...] = ()
    rows: tuple[str, ...] = ()
    command: str = ""
    test: str = ""
    waits_for: str = ""
    rejected: str = ""
    contradiction: str = ""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item.

    first, last: its lines, counted from 1. section: name of the heading it stands under; of a
    heading its own. repeated: lines of the document that repeats this one. Exactly one of rows
    (ids of the catalog's rows), command, test (a file), waits_for (name of a Work) and rejected
    (the reason) is filled. contradiction: id of the one that a rejection goes by; empty without.
    """

    id: str
    document: str
    kind: Kind
    name: str
    section: str
    first: int
    last: int
    repeated: tuple[int, ...] = ()
    rows: tuple[str, ...] = ()
    command: str = ""
    test: str = ""
    waits_for: str = ""
    rejected: str = ""
    contradiction: str = ""

    @property
    def answer(self) -> Answer:
        """Which of the five answers it has."""
        return next(name for name in ANSWERS if getattr(self, name))

    @property
    def open(self) -> bool:
        """Whether it waits for something."""
        return bool(self.waits_for)


class Coverage(NamedTuple):
    """Documents and works by id and name, items in the order of the documents."""

    documents: Mapping[str, Document]
    works: Mapping[str, Work]
    items: tuple[Item, ...]

    def of(self, document: str) -> tuple[Item, ...]:
        """The items of a document; of one that repeats another those that it says again."""
        repeats = self.documents[document].repeats
        if repeats:
            return tuple(one for one in self.items if one.document == repeats and one.repeated)
        return tuple(one for one in self.items if one.document == document)

    def kinds_of(self, document: str) -> dict[Kind, int]:
        """How many items of each kind a document has, of every kind."""
        found = Counter(one.kind for one in self.of(document))
        return {kind: found[kind] for kind in ITEM_KINDS}

    def answers_of(self, document: str) -> dict[Answer, int]:
        """How many items of a document have each answer, of every answer."""
        found = Counter(one.answer for one in self.of(document))
        return {answer: found[answer] for answer in ANSWERS}

    def waiting(self) -> dict[str, tuple[Item, ...]]:
        """Items that wait, by the work they wait for, for every work."""
        return {
            work: tuple(one for one in self.items if one.waits_for == work) for work in self.works
        }


def load_coverage(path: Path = FILE) -> Coverage:
    """Read the file. Raises CatalogError naming file, item and fault."""
    origin = path.name
    try:
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogError(f"{origin}: not valid TOML: {error}") from error
    for key in parsed:
        if key not in ("document", "work", "items"):
            raise CatalogError(f"{origin}: unknown table {key!r}; there are document, work, items")
    documents = {
        one.id: one for one in _converted(parsed.get("document", []), list[Document], origin)
    }
    works = {one.name: one for one in _converted(parsed.get("work", []), list[Work], origin)}
    tables = _converted(parsed.get("items", {}), dict[str, list[dict[str, Any]]], origin)
    for name in tables:
        if name not in documents or documents[name].repeats:
            raise CatalogError(f"{origin}: items.{name}: no document of that id has items")
    items = [
        item
        for name, written in tables.items()
        for item in _items(documents[name], written, works, origin)
    ]
    return Coverage(documents, works, tuple(items))


def faults(coverage: Coverage, known: Catalog) -> list[str]:
    """Rows and contradictions that items name and the catalog has not, one line each."""
    ids = {row.id for kind in ROW_KINDS for row in known.table(kind)}
    return [
        *(f"{one.id}: no row {row!r}" for one in coverage.items for row in one.rows
          if row not in ids),
        *(f"{one.id}: no contradiction {one.contradiction!r}" for one in coverage.items
          if one.contradiction and one.contradiction not in known.contradictions),
    ]  # fmt: skip


def _items(
    document: Document, tables: list[dict[str, Any]], works: Mapping[str, Work], origin: str
) -> Iterator[Item]:
    section, before = "", 0
    for table in tables:
        where = f"{origin}: item {table.get('id', '?')!r}"
        written = _converted(table, _Written, where)
        prefix, _, number = written.id.rpartition("-")
        if prefix != document.prefix or not number.isdecimal():
            raise CatalogError(f"{where}: the id is {document.prefix}- and its first line")
        first = int(number)
        last = first if written.last is None else written.last
        if not before < first <= last <= document.lines:
            raise CatalogError(
                f"{where}: lines {first} to {last}; they follow {before} and end at "
                f"{document.lines}, and no two items share one"
            )
        _check_answer(written, works, where)
        before = last
        section = written.name if written.kind == "section" else section
        fields = msgspec.structs.asdict(written) | {"first": first, "last": last}
        yield Item(**fields, document=document.id, section=section)


def _check_answer(item: _Written, works: Mapping[str, Work], where: str) -> None:
    if not item.name.strip():
        raise CatalogError(f"{where}: has no name; give it one of a few words")
    given = [name for name in ANSWERS if getattr(item, name)]
    if len(given) != 1:
        said = " and ".join(given) or "no answer"
        raise CatalogError(f"{where}: has {said}; give it one of {', '.join(ANSWERS)}")
    if item.contradiction and not item.rejected:
        raise CatalogError(f"{where}: contradiction goes with rejected; rows name their own")
    if item.waits_for and item.waits_for not in works:
        raise CatalogError(f"{where}: waits for {item.waits_for!r}; there are: {', '.join(works)}")


def _converted(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise CatalogError(f"{where}: {error}") from error
