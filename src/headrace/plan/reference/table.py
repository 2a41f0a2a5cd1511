"""A table of a reference page: cells made of facts, sorted and filtered, before it has a look.

Every cell keeps the facts it was made of, so that source, date, confidence and disputes of what is
shown are never further away than the cell itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headrace.catalog.fact import Confidence, Fact
from headrace.catalog.names import hint, plain
from headrace.catalog.rows import Row
from headrace.catalog.shown_value import shown_value
from headrace.catalog.span import Span
from headrace.errors import CatalogError
from headrace.page.figures import DASH

_SURENESS = tuple(Confidence)


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and the field of the row below it; of a field with several values, all of them."""

    heading: str
    field: str
    figure: bool = False
    """Sorted by number."""
    about: str = ""
    """What the heading means."""
    notes: bool = False
    """Whether the notes of the facts are part of the cell, because the value says nothing without
    them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A cell. order: what it is sorted by where that is a number. facts: by path; what it shows."""

    text: str
    order: float | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the catalog, or one entry of a register, with a cell for each column."""

    kind: str
    id: str
    name: str
    aliases: tuple[str, ...]
    """Other names it is found by."""
    entries: tuple[Entry, ...]
    facts: Mapping[str, Fact]
    """All of the row, also those that no column shows."""
    sources: tuple[str, ...]
    """Ids, of what the cells show."""
    dates: tuple[dt.date, dt.date]
    """Days for which that is stated, from first to last."""
    confidence: Confidence | None
    """Confidence of the least certain fact shown; None for registers."""
    disputed_by: tuple[str, ...]
    """Ids of contradictions."""

    @property
    def as_of(self) -> str:
        """The day, or the first and the last."""
        first, last = self.dates
        return f"{first}" if first == last else f"{first} to {last}"

    def has(self, words: Iterable[str]) -> bool:
        """Whether every word is part of a name or of a cell's text."""
        texts = [self.id, self.name, *self.aliases, *(one.text for one in self.entries)]
        said = " ".join([plain(one) for one in texts])
        return all(plain(word) in said for word in words)


@dataclass(frozen=True, slots=True)
class Table:
    """Lines under columns; the name of a line stands before its cells."""

    title: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    def filtered(self, text: str) -> Table:
        """Only lines that have all words of `text`."""
        words = text.split()
        return replace(self, lines=tuple(one for one in self.lines if one.has(words)))

    def place(self, heading: str) -> int | None:
        """Of the column with that heading, however it is written; -1 is the name; None of none."""
        wanted = plain(heading)
        if wanted in ("name", "id"):
            return -1
        headings = [plain(one.heading) for one in self.columns]
        return headings.index(wanted) if wanted in headings else None

    def sorted_by(self, heading: str) -> Table:
        """By a column, or by "name"; "-heading" is from the greatest down.

        Lines without a value stay at the end either way. Raises CatalogError naming the headings.
        """
        down = heading.startswith("-")
        at = self.place(heading.removeprefix("-"))
        if at is None:
            known = ["name", *(one.heading for one in self.columns)]
            raise CatalogError(
                f"there is no column {heading.removeprefix('-')!r} in {self.title!r}; "
                f"{hint(heading, known)} (there are: {', '.join(known)})"
            )
        keyed = [(_key(one, at, self.columns), one) for one in self.lines]
        lacking = [one for key, one in keyed if key is None]
        having = [(key, one) for key, one in keyed if key is not None]
        having.sort(key=lambda pair: pair[0], reverse=down)
        return replace(self, lines=(*(one for _, one in having), *lacking))

    def as_dict(self) -> dict[str, Any]:
        """For JSON: cells with the facts behind them."""
        return {
            "title": self.title,
            "notes": self.notes,
            "columns": [one.heading for one in self.columns],
            "lines": [
                {
                    "kind": line.kind,
                    "id": line.id,
                    "name": line.name,
                    "sources": line.sources,
                    "as_of": [day.isoformat() for day in line.dates],
                    "confidence": line.confidence and line.confidence.value,
                    "disputed_by": line.disputed_by,
                    "cells": {
                        column.heading: {
                            "text": entry.text,
                            "facts": {path: msgspec.to_builtins(fact)
                                      for path, fact in entry.facts.items()},
                        }
                        for column, entry in zip(self.columns, line.entries, strict=True)
                    },
                }
                for line in self.lines
            ],
        }  # fmt: skip


def table_of(
    title: str,
    kind: str,
    rows: Iterable[Row],
    columns: tuple[Column, ...],
    notes: tuple[str, ...] = (),
) -> Table:
    """A line for each row. Columns that no row fills are left out."""
    made = [(row, [entry_of(row, column) for column in columns]) for row in rows]
    filled = [at for at in range(len(columns)) if any(entries[at].facts for _, entries in made)]
    return Table(
        title,
        tuple(columns[at] for at in filled),
        tuple(_line(kind, row, tuple(entries[at] for at in filled)) for row, entries in made),
        notes,
    )


def entry_of(row: Row, column: Column) -> Entry:
    """The cell of a column; a dash where nobody stated it."""
    name = column.field
    single = row.facts.get(name)
    if single is not None:
        return Entry(_said(single, column), _order(single), {name: single})
    several = {path: fact for path, fact in row.facts.items() if path.startswith(f"{name}.")}
    if not several:
        return Entry(DASH)
    said = [f"{path.partition('.')[2]} {_said(fact, column)}" for path, fact in several.items()]
    orders = [one for one in map(_order, several.values()) if one is not None]
    return Entry("; ".join(said), min(orders, default=None), several)


def _said(fact: Fact, column: Column) -> str:
    note = f" ({fact.note.rstrip('.')})" if column.notes and fact.note else ""
    return shown_value(fact) + note


def _line(kind: str, row: Row, entries: tuple[Entry, ...]) -> Line:
    shown = [fact for entry in entries for fact in entry.facts.values()] or list(row.facts.values())
    dates = [fact.as_of for fact in shown]
    return Line(
        kind=kind,
        id=row.id,
        name=row.name,
        aliases=row.aliases,
        entries=entries,
        facts=row.facts,
        sources=tuple(dict.fromkeys(fact.source for fact in shown)),
        dates=(min(dates), max(dates)),
        confidence=max((fact.confidence for fact in shown), key=_SURENESS.index),
        disputed_by=row.disputed_by,
    )


def _order(fact: Fact) -> float | None:
    value = fact.value
    if isinstance(value, Span):
        return next((one for one in (value.middle, value.high, value.low) if one is not None), None)
    if isinstance(value, dt.date):
        return float(value.toordinal())
    if isinstance(value, int | float):
        return float(value)
    return None


def _key(line: Line, at: int, columns: tuple[Column, ...]) -> tuple[float, str] | None:
    if at < 0:
        return (0.0, line.name.casefold())
    entry = line.entries[at]
    if columns[at].figure:
        return None if entry.order is None else (entry.order, "")
    return None if entry.text == DASH else (0.0, entry.text.casefold())
