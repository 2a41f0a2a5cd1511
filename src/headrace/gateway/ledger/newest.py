"""The newest requests of the ledger, one by one."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import msgspec

from headrace.gateway.ledger.errors import LedgerError
from headrace.gateway.ledger.row import entry_of
from headrace.gateway.ledger.schema import COLUMN_NAMES
from headrace.gateway.serving.entry import Entry, Outcome


class EntryFilter(NamedTuple):
    """Conditions on requests; None: any."""

    model: str | None = None
    """By the name that clients used."""
    key: str | None = None
    outcome: Outcome | None = None
    limit: int = 20
    """The most entries to return."""


def newest(connection: sqlite3.Connection, wanted: EntryFilter) -> list[Entry]:
    """The newest entries by arrival, newest first. Raises LedgerError for a damaged row,
    sqlite3.Error."""
    given = [
        (name, value)
        for name, value in (
            ("model", wanted.model),
            ("key", wanted.key),
            ("outcome", wanted.outcome),
        )
        if value is not None
    ]
    where = " AND ".join(f"{name} = ?" for name, _ in given) or "1"
    rows = connection.execute(
        f"SELECT {', '.join(COLUMN_NAMES)} FROM requests WHERE {where} "
        "ORDER BY at_ms DESC, number DESC LIMIT ?",
        (*(value for _, value in given), wanted.limit),
    )
    try:
        return [entry_of(row) for row in rows]
    except msgspec.MsgspecError as error:
        raise LedgerError(f"a row of the ledger is damaged: {error}") from error
