"""The ledger's file in the hands of the one thread that writes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Protocol

from headrace.gateway.ledger.row import row_of
from headrace.gateway.ledger.schema import COLUMN_NAMES, open_for_writing
from headrace.gateway.serving.entry import Entry
from headrace.sqlite_file import transaction

# SQLite lets other threads run at each statement, and the event loop with them. By single rows each
# handing over would be a good part of a row's cost; by more the loop would wait for them.
_ROWS_AT_ONCE = 16
_DELETE = (
    "DELETE FROM requests WHERE number IN "
    "(SELECT number FROM requests WHERE at_ms < ? ORDER BY at_ms LIMIT ?)"
)


@cache
def _insert(rows: int) -> str:
    row = f"({', '.join('?' * len(COLUMN_NAMES))})"
    return f"INSERT INTO requests ({', '.join(COLUMN_NAMES)}) VALUES {', '.join([row] * rows)}"


class Writing(Protocol):
    """The interface that the ledger's thread writes to. All methods may raise sqlite3.Error and
    OSError."""

    def append(self, entries: Sequence[Entry]) -> None:
        """All of them or none."""

    def delete_before(self, at_ms: int, most: int) -> int:
        """Delete so many of the oldest requests that came before; how many there were."""

    def close(self) -> None:
        """Close the file; nothing more is written."""


class LedgerFile:
    """A file of a ledger. Raises LedgerError for an unusable file, which stays as it is."""

    def __init__(self, path: Path) -> None:
        self._connection = open_for_writing(path)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write in one transaction."""
        with transaction(self._connection):
            for at in range(0, len(entries), _ROWS_AT_ONCE):
                rows = [row_of(entry) for entry in entries[at : at + _ROWS_AT_ONCE]]
                self._connection.execute(_insert(len(rows)), [*chain.from_iterable(rows)])

    def delete_before(self, at_ms: int, most: int) -> int:
        """The room in the file is used again; the file does not become smaller."""
        with transaction(self._connection):
            return self._connection.execute(_DELETE, (at_ms, most)).rowcount

    def close(self) -> None:
        """The write-ahead log goes into the file."""
        self._connection.close()
