"""Requests of the ledger that somebody looks for, page by page, the newest first."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

import msgspec

from headrace.errors import ConfigError, shown
from headrace.gateway.ledger.errors import LedgerError
from headrace.gateway.ledger.row import entry_of
from headrace.gateway.ledger.schema import COLUMN_NAMES
from headrace.gateway.serving.entry import Entry, Outcome

# Where words are looked for: names, and what went wrong. Prompts and answers are not in it.
_SEARCHED = ("id", "model", "target", "key", "user", "team", "organisation", "tags", "error",
             "attempts")  # fmt: skip


class Filter(NamedTuple):
    """Conditions on requests; None: any."""

    model: str | None = None
    key: str | None = None
    outcome: Outcome | None = None
    text: str | None = None
    """Words that occur in its names or its failures, ignoring case."""

    def takes(self, entry: Entry) -> bool:
        """Whether a request that is over belongs to it."""
        if self.text is not None:
            said = [entry.id, entry.model, entry.target or "", entry.key, entry.user, entry.team]
            said += [entry.organisation, *entry.tags, entry.error]
            said += [
                part for attempt in entry.attempts for part in (attempt.target, attempt.message)
            ]
            if not any(self.text.casefold() in one.casefold() for one in said):
                return False
        return (
            self.model in (None, entry.model)
            and self.key in (None, entry.key)
            and self.outcome in (None, entry.outcome)
        )


class Cursor(NamedTuple):
    """The end of a page; the next one continues from it."""

    at_ms: int
    number: int

    def __str__(self) -> str:
        return f"{self.at_ms}.{self.number}"


class FoundPage(NamedTuple):
    """A page of requests."""

    entries: tuple[Entry, ...]
    next: Cursor | None
    """None if there is nothing more."""


def cursor_of(text: str) -> Cursor:
    """The cursor that `str` wrote. Raises ConfigError."""
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isascii() and 0 < len(part) < 19 and part.isdigit()
                                  for part in parts):  # fmt: skip
        raise ConfigError(
            f"cursor: {shown(text)} is not a cursor; give the one that the last page returned"
        )
    return Cursor(int(parts[0]), int(parts[1]))


def found_page(
    connection: sqlite3.Connection, wanted: Filter, before: Cursor | None, limit: int
) -> FoundPage:
    """At most `limit` requests. Raises LedgerError for a damaged row, sqlite3.Error."""
    conditions = ["1"]
    values: list[Any] = []
    for name in ("model", "key", "outcome"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(f"{name} = ?")
            values.append(value)
    if before is not None:
        conditions.append("(at_ms, number) < (?, ?)")
        values += before
    if wanted.text is not None:
        conditions.append(
            "(" + " OR ".join(f"instr(lower({name}), lower(?)) > 0" for name in _SEARCHED) + ")"
        )
        values += [wanted.text] * len(_SEARCHED)
    rows = connection.execute(
        f"SELECT number, {', '.join(COLUMN_NAMES)} FROM requests WHERE {' AND '.join(conditions)} "
        "ORDER BY at_ms DESC, number DESC LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    found = tuple(_entry(row) for row in rows[:limit])
    if len(rows) <= limit:
        return FoundPage(found, None)
    last = rows[limit - 1]
    return FoundPage(found, Cursor(last[1 + COLUMN_NAMES.index("at_ms")], last[0]))


def found_with_id(
    connection: sqlite3.Connection, id: str, at_s: float | None = None
) -> tuple[Entry, ...]:
    """The request with that id and its side calls, the oldest first; all requests with the id if
    clients used it several times. at_s: Unix time of its arrival, without which the whole ledger is
    searched. Raises as `found_page`."""
    near, values = "1", []
    if at_s is not None:
        # What belongs to a request came while it lasted.
        near, values = (
            "at_ms BETWEEN ? AND ?",
            [round(at_s * 1000) - 1, round(at_s * 1000) + _DAY_MS],
        )
    rows = connection.execute(
        f"SELECT number, {', '.join(COLUMN_NAMES)} FROM requests "
        f"WHERE {near} AND (id = ? OR parent = ?) ORDER BY at_ms, number LIMIT {_MOST_OF_ONE_ID}",
        (*values, id, id),
    )
    return tuple(_entry(row) for row in rows)


_DAY_MS = 86_400_000
_MOST_OF_ONE_ID = 100


def _entry(row: tuple[Any, ...]) -> Entry:
    try:
        return entry_of(row[1:])
    except msgspec.MsgspecError as error:
        raise LedgerError(f"a row of the ledger is damaged: {error}") from error
