"""The ledger's table, and whether a file is one of ours and whole."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.gateway.ledger.errors import LedgerError

SCHEMA_VERSION = 2
# "HRle": tells our files from other programs' (PRAGMA application_id).
APPLICATION_ID = 0x48526C65
# Another process may be writing; a write takes milliseconds.
_BUSY_S = 5.0
_WAL_ATTEMPTS = 100
# All of a file is looked at where that is a matter of tenths of a second; of a larger one the head.
_WHOLE_CHECK_BYTES = 64 * 2**20

# Name and type of each column; `row.py` fills them in this order. Tokens lie in one column each, so
# that sums need no JSON. An empty text stands for "none" where people group by it.
COLUMNS = (
    ("id", "TEXT NOT NULL"),
    ("at_ms", "INTEGER NOT NULL"),
    ("dialect", "TEXT NOT NULL"),
    ("operation", "TEXT NOT NULL"),
    ("model", "TEXT NOT NULL"),
    ("target", "TEXT NOT NULL"),
    ("provider", "TEXT NOT NULL"),
    ("organisation", "TEXT NOT NULL"),
    ("team", "TEXT NOT NULL"),
    ("user", "TEXT NOT NULL"),
    ("key", "TEXT NOT NULL"),
    ("tags", "TEXT NOT NULL"),
    ("outcome", "TEXT NOT NULL"),
    ("status", "INTEGER NOT NULL"),
    ("stream", "INTEGER NOT NULL"),
    ("finish", "TEXT"),
    ("cache", "TEXT NOT NULL"),
    ("usage_from", "TEXT NOT NULL"),
    ("input_tokens", "INTEGER"),
    ("cache_read_tokens", "INTEGER"),
    ("cache_write_tokens", "INTEGER"),
    ("cache_write_1h_tokens", "INTEGER"),
    ("input_audio_tokens", "INTEGER"),
    ("input_audio_s", "INTEGER"),
    ("output_tokens", "INTEGER"),
    ("reasoning_tokens", "INTEGER"),
    ("output_audio_tokens", "INTEGER"),
    ("images", "INTEGER"),
    ("told_cost_nusd", "INTEGER"),
    ("cost_nusd", "INTEGER"),
    ("first_token_ms", "REAL"),
    ("total_ms", "REAL NOT NULL"),
    ("overhead_us", "INTEGER NOT NULL"),
    ("attempts", "TEXT NOT NULL"),
    ("error", "TEXT NOT NULL"),
    ("purpose", "TEXT NOT NULL DEFAULT ''"),
    ("parent", "TEXT NOT NULL DEFAULT ''"),
    ("variant", "TEXT NOT NULL DEFAULT ''"),
)
# What files of version 1 lack.
_SINCE_VERSION_2 = 3
COLUMN_NAMES = tuple(name for name, _ in COLUMNS)

_SCHEMA = (
    "CREATE TABLE requests (number INTEGER PRIMARY KEY, "
    + ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
    + ")",
    "CREATE INDEX requests_at ON requests (at_ms)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """A connection that one thread at a time may use; transactions are begun by hand.

    A file that is not there is made, for its owner's eyes only. Raises LedgerError for one that is
    damaged, newer or not ours, before anything is written to it, and for what the system refuses.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
    except FileNotFoundError as error:
        raise _no_folder(path) from error
    except (OSError, sqlite3.Error) as error:
        raise _refused(path, error) from error
    try:
        is_new = _check_at_once(connection, path)
        _use_write_ahead_log(connection)
        # A crash of the gateway loses nothing that was written; one of the machine may lose the
        # last batches, which is the price of no fsync for each.
        connection.execute("PRAGMA synchronous = NORMAL")
        if is_new:
            _make(connection, path)
        _bring_up_to_date(connection)
    except (OSError, sqlite3.Error) as error:
        connection.close()
        raise _refused(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def check_file(path: Path) -> None:
    """Raises LedgerError where a gateway would not start with it; makes and writes nothing."""
    if not path.parent.is_dir():
        raise _no_folder(path)
    if path.exists() and path.stat().st_size > 0:
        with reading(path):
            return


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as it stands at this moment, while others may go on writing to it.

    Raises LedgerError for a file that is missing, damaged, newer or not ours.
    """
    if not path.is_file():
        raise LedgerError(
            f"{path}: there is no such file; a gateway whose ledger.path names it makes it"
        )
    try:
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None
        )
    except sqlite3.Error as error:
        raise _refused(path, error) from error
    try:
        connection.execute("BEGIN")
        if _check(connection, path):
            raise LedgerError(f"{path}: nothing was ever written to it")
        if _version(connection) < SCHEMA_VERSION:
            raise LedgerError(
                f"{path}: its schema is of an older headrace; a gateway that starts with it brings "
                "it up to date"
            )
        yield connection
    except sqlite3.Error as error:
        raise _refused(path, error) from error
    finally:
        connection.close()


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for this lock by itself, and processes may start together."""
    for _ in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            time.sleep(_BUSY_S / _WAL_ATTEMPTS)
    connection.execute("PRAGMA journal_mode = WAL")


def _check_at_once(connection: sqlite3.Connection, path: Path) -> bool:
    """As `_check`, of one moment: another process may be making the file."""
    connection.execute("BEGIN")
    try:
        is_new = _check(connection, path)
        if not is_new and path.stat().st_size <= _WHOLE_CHECK_BYTES:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise _damaged(path, verdict)
        return is_new
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is empty; LedgerError where it is not one to work with."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    version = _version(connection)
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        return True
    if application != APPLICATION_ID:
        raise LedgerError(
            f"{path}: it is a database of another program; name another file for the ledger"
        )
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"{path}: its schema has version {version} and this headrace knows up to "
            f"{SCHEMA_VERSION}; use the newer headrace that wrote it, or name another file"
        )
    found = [row[1] for row in connection.execute("PRAGMA table_info(requests)")]
    known = COLUMN_NAMES if version > 1 else COLUMN_NAMES[:-_SINCE_VERSION_2]
    if found != ["number", *known]:
        raise _damaged(path, "its columns are not those of its version")
    return False


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """A file of an older version gets the columns it lacks, all of them or none."""
    if _version(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection) < SCHEMA_VERSION:  # another process may have been quicker
            for name, kind in COLUMNS[-_SINCE_VERSION_2:]:
                connection.execute(f"ALTER TABLE requests ADD COLUMN {name} {kind}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _make(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been quicker.
        if _check(connection, path):
            for statement in _SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_damage(error: Exception) -> bool:
    """Whether SQLite found the file itself wrong, which trying again does not mend."""
    code = getattr(error, "sqlite_errorcode", 0)
    return (code & 0xFF) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _no_folder(path: Path) -> LedgerError:
    return LedgerError(f"{path}: there is no folder {path.parent}; make it first")


def _damaged(path: Path, why: str) -> LedgerError:
    return LedgerError(
        f"{path}: it is damaged or no SQLite file ({why}); nothing was written to it, so move it "
        "away, restore it from a copy, or name another file"
    )


def _refused(path: Path, error: Exception) -> LedgerError:
    if is_damage(error):
        return _damaged(path, str(error))
    return LedgerError(f"{path}: {error}")
