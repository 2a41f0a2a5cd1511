"""What the guides behind the catalog hold, item by item: what headrace does with it, and its proof.

The documents are not part of the package. An item is a heading, a table row, a formula, a block of
code, a pitfall or a passage of them, by its lines and a short name. It has one of five values of
`Does`, evidence where headrace does more than know it, and one place where the fact itself is.
Whether the commands and tests exist is for the tests to check: this room knows neither.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from headrace.catalog.catalog import DATA, Catalog
from headrace.catalog.names import hint
from headrace.catalog.rows import KINDS as ROW_KINDS
from headrace.errors import CatalogError

Kind: TypeAlias = Literal[
    "section", "table", "table row", "formula", "code", "decision tree", "checklist item",
    "pitfall", "text", "reference",
]  # fmt: skip
Does: TypeAlias = Literal["runs", "part", "plans", "knows", "rejected"]
Answer: TypeAlias = Literal["rows", "command", "test", "rejected"]
ITEM_KINDS: tuple[Kind, ...] = get_args(Kind)
DOES: tuple[Does, ...] = get_args(Does)
ANSWERS: tuple[Answer, ...] = get_args(Answer)
FILE = DATA / "coverage.toml"
# Values of `does` that need something to show them.
_SHOWN: frozenset[Does] = frozenset({"runs", "part", "plans"})


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One background document."""

    id: str
    lines: int
    sha256: str
    """Of its file, so that line numbers mean something."""
    prefix: str = ""
    """Of the ids of its items."""
    repeats: str = ""
    """Id of the document whose text this one repeats; it then has no items of its own."""


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An item as the file has it."""

    id: str
    kind: Kind
    name: str
    does: Does
    last: int | None = None
    topic: str = ""
    by: tuple[str, ...] = ()
    missing: str = ""
    repeated: tuple[int, ...] = ()
    rows: tuple[str, ...] = ()
    command: str = ""
    test: str = ""
    rejected: str = ""
    contradiction: str = ""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a document. Exactly one of rows, command, test and rejected is filled."""

    id: str
    document: str
    kind: Kind
    name: str
    section: str
    """Name of its heading; of a heading its own."""
    topic: str
    first: int
    """Its first line, counted from 1."""
    last: int
    does: Does
    by: tuple[str, ...] = ()
    """Tests and commands that show it; empty where headrace only knows or rejects it."""
    missing: str = ""
    """What headrace does not execute of it, where it executes a part."""
    repeated: tuple[int, ...] = ()
    """Lines of the document that repeats this one."""
    rows: tuple[str, ...] = ()
    """Ids of the catalog's rows that state the fact."""
    command: str = ""
    test: str = ""
    rejected: str = ""
    """Why it is rejected."""
    contradiction: str = ""
    """Id of the contradiction that a rejection goes by; empty without one."""

    @property
    def answer(self) -> Answer:
        """Where the fact is: which of the four fields is filled."""
        return next(name for name in ANSWERS if getattr(self, name))


class Coverage(NamedTuple):
    """The documents and their items, in the order of the documents."""

    documents: Mapping[str, Document]
    """By id."""
    evidence: Mapping[str, str]
    """Tests and commands by the names that items use in the file."""
    items: tuple[Item, ...]

    def of(self, document: str) -> tuple[Item, ...]:
        """The items of a document; of one that repeats another, those that it repeats."""
        repeats = self.documents[document].repeats
        if repeats:
            return tuple(item for item in self.items if item.document == repeats and item.repeated)
        return tuple(item for item in self.items if item.document == document)

    def topics(self) -> dict[str, tuple[Item, ...]]:
        """Items by topic, in the order in which the documents come to them."""
        return {
            topic: tuple(item for item in self.items if item.topic == topic)
            for topic in dict.fromkeys(item.topic for item in self.items)
        }

    def kinds_of(self, document: str) -> dict[Kind, int]:
        """How many items of each kind a document has, of every kind."""
        found = Counter(item.kind for item in self.of(document))
        return {kind: found[kind] for kind in ITEM_KINDS}

    def answers_of(self, document: str) -> dict[Answer, int]:
        """How many items of a document have each answer, of every answer."""
        found = Counter(item.answer for item in self.of(document))
        return {answer: found[answer] for answer in ANSWERS}


def count_does(items: Iterable[Item]) -> dict[Does, int]:
    """How many of the items have each value of `does`, of every value."""
    found = Counter(item.does for item in items)
    return {does: found[does] for does in DOES}


def summary(items: Sequence[Item]) -> str:
    """One sentence with the five counts."""
    counts = count_does(items)
    return (
        f"Of {len(items)} items of the guides behind the catalog headrace runs {counts['runs']}, "
        f"runs {counts['part']} in part, plans {counts['plans']}, only knows "
        f"{counts['knows']} and rejects {counts['rejected']}."
    )


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
        if key not in ("document", "evidence", "items"):
            raise CatalogError(
                f"{origin}: unknown table {key!r}; write document, evidence or items"
            )
    documents = {
        document.id: document
        for document in _converted(parsed.get("document", []), list[Document], origin)
    }
    evidence = _converted(parsed.get("evidence", {}), dict[str, str], origin)
    for name, shown_by in evidence.items():
        if not shown_by.startswith(("tests/", "headrace ")):
            raise CatalogError(
                f"{origin}: evidence {name!r}: {shown_by!r}: write tests/FILE, "
                "tests/FILE::FUNCTION or headrace COMMAND"
            )
    tables = _converted(parsed.get("items", {}), dict[str, list[dict[str, Any]]], origin)
    for name in tables:
        if name not in documents or documents[name].repeats:
            raise CatalogError(f"{origin}: items.{name}: no document with items has that id")
    items = [
        item
        for name, written in tables.items()
        for item in _items(documents[name], written, evidence, origin)
    ]
    _check_headings(items, origin)
    return Coverage(documents, evidence, tuple(items))


def faults(coverage: Coverage, known: Catalog) -> list[str]:
    """Rows and contradictions that items name and the catalog lacks, one line each."""
    ids = {row.id for kind in ROW_KINDS for row in known.table(kind)}
    return [
        *(f"{item.id}: no row {row!r}" for item in coverage.items for row in item.rows
          if row not in ids),
        *(f"{item.id}: no contradiction {item.contradiction!r}" for item in coverage.items
          if item.contradiction and item.contradiction not in known.contradictions),
    ]  # fmt: skip


def _items(
    document: Document, tables: list[dict[str, Any]], evidence: Mapping[str, str], origin: str
) -> Iterator[Item]:
    section, section_topic, before = "", "", 0
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
                f"{document.lines}, and no two items share a line"
            )
        _check_answer(written, where)
        _check_does(written, evidence, where)
        before = last
        if written.kind == "section":
            section, section_topic = written.name, written.topic or section_topic
        topic = written.topic or section_topic
        if not topic:
            raise CatalogError(f"{where}: has no topic; give it or its heading one")
        fields = msgspec.structs.asdict(written) | {
            "first": first,
            "last": last,
            "topic": topic,
            "by": tuple(evidence[name] for name in written.by),
        }
        yield Item(**fields, document=document.id, section=section)


def _check_headings(items: Iterable[Item], origin: str) -> None:
    """A heading or table head that runs has nothing in part right under it.

    What stands under a further heading counts for that heading. Raises CatalogError.
    """
    document = ""
    heading: Item | None = None
    table: Item | None = None
    for item in items:
        if item.document != document:
            document, heading, table = item.document, None, None
        if item.kind == "section":
            heading, table = item, None
            continue
        if item.kind != "table row":
            table = item if item.kind == "table" else None
        for above in (heading, table):
            if above is not None and above.does == "runs" and item.does == "part":
                raise CatalogError(
                    f"{origin}: item {above.id!r}: runs, and {item.id} under it only in part; "
                    'write does = "part" and what is missing'
                )


def _check_answer(item: _Written, where: str) -> None:
    if not item.name.strip():
        raise CatalogError(f"{where}: has no name; give it one of a few words")
    given = [name for name in ANSWERS if getattr(item, name)]
    if len(given) != 1:
        found = " and ".join(given) or "no answer"
        raise CatalogError(f"{where}: has {found}; give it one of {', '.join(ANSWERS)}")
    if item.contradiction and not item.rejected:
        raise CatalogError(f"{where}: contradiction goes with rejected; rows name their own")


def _check_does(item: _Written, evidence: Mapping[str, str], where: str) -> None:
    """Evidence, what is missing and the reason of a rejection are given exactly where they belong.

    Raises CatalogError.
    """
    if (item.does == "rejected") != bool(item.rejected):
        raise CatalogError(f'{where}: does = "rejected" and the reason in rejected go together')
    if (item.does == "part") != bool(item.missing):
        raise CatalogError(f'{where}: does = "part" and what is missing go together')
    if (item.does in _SHOWN) != bool(item.by):
        raise CatalogError(
            f"{where}: does = {item.does!r} with by = {list(item.by)}; runs, part and plans name "
            "their evidence, knows and rejected have none"
        )
    for name in item.by:
        if name not in evidence:
            raise CatalogError(f"{where}: no evidence {name!r}; {hint(name, evidence)}")


def _converted(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise CatalogError(f"{where}: {error}") from error
