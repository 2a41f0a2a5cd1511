"""Records in PostgreSQL. Needs psycopg: pip install 'headrace[postgres]'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import conninfo, errors, sql

from headrace.errors import ConfigError
from headrace.gateway.batch_writer import Verdict
from headrace.gateway.request_log.columns import COLUMN_NAMES, COLUMNS, quoted, record_of, row_of
from headrace.gateway.request_log.errors import RequestLogError
from headrace.gateway.request_log.filters import Page, RecordFilter
from headrace.gateway.request_log.query import (
    POSTGRESQL,
    Query,
    find_query,
    line_at_ms,
    newest_query,
    page_of,
)
from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.settings.secret import Secret

SCHEMA_VERSION = 1
# A name of our own, in which rights can be given without touching other tables. It is named in each
# statement: behind a pooler of connections nothing that is set for one lasts.
_TABLE = POSTGRESQL.table
_VERSION = "headrace.request_log_version"
# Gateways that start together make the tables one after the other.
_LOCK = 0x4852726C
_CONNECT_S = 5
_STATEMENT_MS = 15_000
# A server that is gone without a word is noticed after about this long.
_SILENCE_MS = 10_000

_TYPES = {"line": 'TEXT COLLATE "C" PRIMARY KEY'}
_COLUMNS = ", ".join(f'"{name}" {_TYPES.get(name, kind)}' for name, kind in COLUMNS)
_MAKE = (
    "CREATE SCHEMA IF NOT EXISTS headrace",
    f"CREATE TABLE IF NOT EXISTS {_VERSION} (version INTEGER NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS {_TABLE} ({_COLUMNS})",
    f'CREATE INDEX IF NOT EXISTS requests_id ON {_TABLE} ("id")',
    f"INSERT INTO {_VERSION} SELECT {SCHEMA_VERSION} WHERE NOT EXISTS (SELECT 1 FROM {_VERSION})",
)
_INSERT = (
    f"INSERT INTO {_TABLE} ({quoted()}) VALUES ({', '.join(['%s'] * len(COLUMN_NAMES))}) "
    "ON CONFLICT DO NOTHING"
)
_DELETE = (
    f'DELETE FROM {_TABLE} WHERE "line" IN '
    f'(SELECT "line" FROM {_TABLE} WHERE "line" < %s ORDER BY "line" LIMIT %s)'
)


class Database:
    """A PostgreSQL database. url: with its password; never shown. Raises ConfigError if it is not
    valid."""

    def __init__(self, url: Secret) -> None:
        self._url = url
        try:
            parts = urlsplit(url.reveal())
            conninfo.conninfo_to_dict(url.reveal())
            is_right = parts.scheme in ("postgresql", "postgres")
        except (psycopg.Error, ValueError):  # whose texts may have the password
            is_right = False
        if not is_right:
            raise ConfigError(
                f"request_log.url ({url.source}): expected postgresql://user:password@host/database"
            ) from None
        self.name = f"postgresql://{parts.hostname or 'localhost'}{parts.path}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Raises psycopg.Error, whose text has no password."""
        return psycopg.connect(
            self._url.reveal(),
            connect_timeout=_CONNECT_S,
            application_name="headrace gateway",
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=2,
            tcp_user_timeout=_SILENCE_MS,
            prepare_threshold=None,  # which poolers of connections do not bear
        )


class PostgresqlRecords:
    """The writing side, for the one thread that writes. It connects when there is something to
    write, and again after each failure; it creates the table if there is none."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def append(self, records: Sequence[LogRecord]) -> None:
        """Write in one transaction. If its confirmation was lost it may have been done: records
        that exist already are left unchanged."""
        with self._transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(_INSERT.encode(), [row_of(record) for record in records])

    def delete_before(self, at_ms: int, most: int) -> int:
        """See Batches."""
        with self._transaction() as connection:
            return connection.execute(_DELETE.encode(), (line_at_ms(at_ms), most)).rowcount

    def close(self) -> None:
        """The connection ends."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        try:
            if self._connection is None:
                self._connection = self._database.connect()
                _make(self._connection)
            with _bounded(self._connection):
                yield self._connection
        except psycopg.Error as error:
            if not isinstance(error, psycopg.DataError):
                with suppress(psycopg.Error):
                    self.close()
            raise


class PostgresqlReader:
    """The reading side, for any thread; it connects for each query."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self, wanted: RecordFilter) -> Page:
        """Raises RequestLogError."""
        return page_of(self._rows(newest_query(wanted, POSTGRESQL)), wanted)

    def find(self, request_id: str) -> LogRecord | None:
        """Raises RequestLogError."""
        rows = self._rows(find_query(request_id, POSTGRESQL))
        return record_of(rows[0]) if rows else None

    def _rows(self, query: Query) -> list[tuple[Any, ...]]:
        try:
            with self._database.connect() as connection, _bounded(connection):
                return connection.execute(query.statement.encode(), query.values).fetchall()
        except errors.UndefinedTable:
            return []  # nothing was ever written
        except psycopg.Error as error:
            raise RequestLogError(f"{self._database.name}: {said(error)}") from error


def judged(error: Exception) -> Verdict | None:
    """What an error means to the writer; None if it is not one of PostgreSQL's."""
    if isinstance(error, RequestLogError):
        return "damaged"
    if isinstance(error, psycopg.DataError):
        return "bad_line"
    if isinstance(error, psycopg.Error | OSError):
        return "later"  # also rights and tables that are missing: they can be given and made
    return None


def said(error: Exception) -> str:
    """Its first line."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def _bounded(connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[None]:
    """A transaction whose statements end in time."""
    with connection.transaction():
        connection.execute(f"SET LOCAL statement_timeout = {_STATEMENT_MS}".encode())
        yield


def _make(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    with _bounded(connection):
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        found = connection.execute(f"SELECT to_regclass('{_TABLE}')".encode()).fetchone()
        if found == (None,):
            for statement in _MAKE:
                connection.execute(sql.SQL(statement))
        version = connection.execute(f"SELECT version FROM {_VERSION}".encode()).fetchone()
    if version is None or version[0] > SCHEMA_VERSION:
        connection.close()
        raise RequestLogError(
            f"the table {_TABLE} has a newer version than {SCHEMA_VERSION}, the newest that "
            "this headrace knows; use the newer headrace that made it, or name another database"
        )
