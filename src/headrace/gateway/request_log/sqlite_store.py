"""Records in a SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.gateway.request_log.columns import COLUMN_NAMES, COLUMNS, quoted, record_of, row_of
from headrace.gateway.request_log.errors import RequestLogError
from headrace.gateway.request_log.filters import Page, RecordFilter
from headrace.gateway.request_log.query import (
    SQLITE,
    find_query,
    line_at_ms,
    newest_query,
    page_of,
)
from headrace.gateway.request_log.record import LogRecord
from headrace.sqlite_file import FileKind, transaction

_COLUMNS = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS)
FILE = FileKind(
    application_id=0x4852726C,  # "HRrl"
    version=1,
    columns_of=lambda version: list(COLUMN_NAMES),
    statements=(
        f"CREATE TABLE requests ({_COLUMNS})",
        'CREATE INDEX requests_id ON requests ("id")',
    ),
    purpose="the request log",
    setting="request_log.path",
    made_by="a gateway that starts with `request_log: {enabled: true}` in its file",
    error=RequestLogError,
)

_INSERT = (
    f"INSERT INTO requests ({quoted()}) VALUES ({', '.join('?' * len(COLUMN_NAMES))}) "
    "ON CONFLICT DO NOTHING"
)
_DELETE = (
    'DELETE FROM requests WHERE "line" IN '
    '(SELECT "line" FROM requests WHERE "line" < ? ORDER BY "line" LIMIT ?)'
)


class SqliteRecords:
    """The writing side, for the one thread that writes. Raises RequestLogError for a file that
    cannot be used, which is left unchanged."""

    def __init__(self, path: Path) -> None:
        self._connection = FILE.open_for_writing(path)

    def append(self, records: Sequence[LogRecord]) -> None:
        """Write in one transaction; records that exist already are left unchanged."""
        with transaction(self._connection):
            self._connection.executemany(_INSERT, (row_of(record) for record in records))

    def delete_before(self, at_ms: int, most: int) -> int:
        """The room in the file is used again; the file does not become smaller."""
        with transaction(self._connection):
            return self._connection.execute(_DELETE, (line_at_ms(at_ms), most)).rowcount

    def close(self) -> None:
        """The write-ahead log goes into the file."""
        self._connection.close()


class SqliteReader:
    """The reading side, for any thread, while others write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def newest(self, wanted: RecordFilter) -> Page:
        """Raises RequestLogError."""
        query = newest_query(wanted, SQLITE)
        with FILE.reading(self._path) as connection:
            return page_of(connection.execute(*query).fetchall(), wanted)

    def find(self, request_id: str) -> LogRecord | None:
        """Raises RequestLogError."""
        with FILE.reading(self._path) as connection:
            row = connection.execute(*find_query(request_id, SQLITE)).fetchone()
        return None if row is None else record_of(row)
