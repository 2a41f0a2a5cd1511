"""The file of accounts: its schema, and whether a file is one of ours and whole."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headrace.gateway.accounts.errors import StoreError
from headrace.sqlite_file import (
    WHOLE_CHECK_BYTES,
    make_private,
    transaction,
    use_write_ahead_log,
)

SCHEMA_VERSION = 1
# "HRac": tells our files from other programs' (PRAGMA application_id).
APPLICATION_ID = 0x48526163
# Another process may be writing; a write takes milliseconds.
_BUSY_S = 5.0

_SCHEMA = (
    "CREATE TABLE generation (number INTEGER NOT NULL)",
    "INSERT INTO generation VALUES (0)",
    "CREATE TABLE groups (level TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL, "
    "PRIMARY KEY (level, name)) WITHOUT ROWID",
    "CREATE TABLE keys (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE spent (meter_id TEXT NOT NULL, bucket INTEGER NOT NULL, amount INTEGER NOT NULL, "
    "leaves_ms INTEGER, PRIMARY KEY (meter_id, bucket)) WITHOUT ROWID",
    "CREATE INDEX spent_leaves ON spent (leaves_ms)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# What makes a file large is marks: of the rest all is looked at in any file.
_ALWAYS_CHECKED = ("generation", "groups", "keys", "spent")
# Came later; a headrace that does not know them leaves them alone.
_ADDED = (
    "CREATE TABLE IF NOT EXISTS marks (id TEXT PRIMARY KEY, owner TEXT NOT NULL, "
    "until_ms INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS marks_newest ON marks (owner, until_ms)",
    "CREATE INDEX IF NOT EXISTS marks_end ON marks (until_ms)",
)


def open_file(path: Path) -> sqlite3.Connection:
    """A connection for the thread that calls; transactions are begun by hand.

    Raises StoreError for a file that is not ours, newer or damaged, before anything is written to
    it; sqlite3.Error and OSError for what the system refuses.
    """
    # Digests of keys and names of people are nobody else's business.
    try:
        make_private(path)
    except FileNotFoundError as error:
        raise StoreError(
            f"{path}: the folder {path.parent} does not exist; make it first"
        ) from error
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        is_new = _check_at_once(connection, path)
        use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        if is_new:
            _make(connection, path)
        for statement in _ADDED:
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_at_once(connection: sqlite3.Connection, path: Path) -> bool:
    """Like `_check`, at one moment: another process may be creating the file."""
    connection.execute("BEGIN")
    try:
        return _check(connection, path)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is empty; StoreError where it is not one to work with."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return True
        if application != APPLICATION_ID:
            raise StoreError(
                f"{path}: this is a database of another program; name another file for accounts"
            )
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{path}: its schema has version {version}, and this headrace knows versions up "
                f"to {SCHEMA_VERSION}; use the newer headrace that wrote it"
            )
        parts = ("1",) if path.stat().st_size <= WHOLE_CHECK_BYTES else _ALWAYS_CHECKED
        for part in parts:
            (verdict,) = connection.execute(f"PRAGMA quick_check({part})").fetchone()
            if verdict != "ok":
                raise _damaged(path, verdict)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise _damaged(path, str(error)) from error
    return False


def _make(connection: sqlite3.Connection, path: Path) -> None:
    with transaction(connection):
        # Another process may have been quicker.
        if _check(connection, path):
            for statement in _SCHEMA:
                connection.execute(statement)


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path}: it is damaged or not an SQLite file ({why}); nothing was written to it, so "
        "restore it from a copy or name another file"
    )
