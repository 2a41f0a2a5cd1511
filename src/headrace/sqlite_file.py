"""SQLite files: whether a file is one of ours and intact, and opening it.

Nothing is written to a file that is damaged, newer or of another program.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError

# Another process may be writing; a write takes milliseconds.
_BUSY_S = 5.0
_WAL_ATTEMPTS = 100
WHOLE_CHECK_BYTES = 64 * 2**20
"""A file up to this size is checked whole, in tenths of a second; a larger one in part."""


def make_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists. Raises OSError.

    An existing file is not opened: closing a descriptor drops every lock that the process has on
    the file (POSIX), and SQLite's would be among them while another connection is open.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _nothing_to_add(connection: sqlite3.Connection, version: int) -> None:
    """The upgrade of a kind that has had one version so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileKind:
    """A kind of SQLite file."""

    application_id: int
    """Distinguishes it from other programs' files (PRAGMA application_id)."""
    version: int
    columns_of: Callable[[int], list[str]]
    """The columns of `table`, by version."""
    statements: tuple[str, ...]
    """Make an empty file one of `version`."""
    purpose: str
    """What it is for, as in "the ledger"."""
    setting: str
    """The setting that names the file."""
    error: type[HeadraceError]
    """The type of errors raised."""
    table: str = "requests"
    """The table that is looked at."""
    made_by: str = ""
    """What creates a missing file, if it takes more than that setting."""
    upgrade: Callable[[sqlite3.Connection, int], None] = _nothing_to_add
    """Upgrades a file of an older version, in a transaction."""

    def open_for_writing(self, path: Path) -> sqlite3.Connection:
        """A connection that one thread at a time may use; transactions are explicit.

        A missing file is created, readable by its owner only. Raises `error` for a file that cannot
        be used, before anything is written to it, and for errors of the system.
        """
        try:
            make_private(path)
            connection = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
        except FileNotFoundError as error:
            raise self._no_folder(path) from error
        except (OSError, sqlite3.Error) as error:
            raise self._refused(path, error) from error
        try:
            is_new = self._check_at_once(connection, path)
            use_write_ahead_log(connection)
            # A crash of the process loses nothing that was written; a crash of the machine may lose
            # the last batches, the price of not calling fsync for each.
            connection.execute("PRAGMA synchronous = NORMAL")
            if is_new:
                self._make(connection, path)
            self._bring_up_to_date(connection)
        except (OSError, sqlite3.Error) as error:
            connection.close()
            raise self._refused(path, error) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def check_file(self, path: Path) -> None:
        """Raise `error` if a gateway could not start with the file; writes nothing."""
        if not path.parent.is_dir():
            raise self._no_folder(path)
        if path.exists() and path.stat().st_size > 0:
            with self.reading(path):
                return

    @contextmanager
    def reading(self, path: Path) -> Iterator[sqlite3.Connection]:
        """A snapshot of the file, while others may go on writing to it.

        Raises `error` for a file that is missing or cannot be used.
        """
        if not path.is_file():
            made_by = self.made_by or f"a gateway whose {self.setting} names it"
            raise self.error(f"{path}: there is no such file; {made_by} creates it")
        try:
            connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro",
                uri=True,
                timeout=_BUSY_S,
                isolation_level=None,
            )
        except sqlite3.Error as error:
            raise self._refused(path, error) from error
        try:
            connection.execute("BEGIN")
            if self._check(connection, path):
                raise self.error(f"{path}: it is empty; nothing was ever written to it")
            if _version(connection) < self.version:
                raise self.error(
                    f"{path}: its schema is of an older headrace; start a gateway with it to "
                    "bring it up to date"
                )
            yield connection
        except sqlite3.Error as error:
            raise self._refused(path, error) from error
        finally:
            connection.close()

    def _check_at_once(self, connection: sqlite3.Connection, path: Path) -> bool:
        """As `_check`, in one snapshot: another process may be creating the file."""
        connection.execute("BEGIN")
        try:
            is_new = self._check(connection, path)
            if not is_new and path.stat().st_size <= WHOLE_CHECK_BYTES:
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != "ok":
                    raise self._damaged(path, verdict)
            return is_new
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _check(self, connection: sqlite3.Connection, path: Path) -> bool:
        """Whether the file is empty. Raises `error` if it cannot be used."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        version = _version(connection)
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return True
        if application != self.application_id:
            raise self.error(
                f"{path}: it is a database of another program; name another file for {self.purpose}"
            )
        if version > self.version:
            raise self.error(
                f"{path}: its schema has version {version} and this headrace knows up to "
                f"{self.version}; use the newer headrace that wrote it, or name another file"
            )
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({self.table})")]
        if columns != self.columns_of(version):
            raise self._damaged(path, "its columns do not match its version")
        return False

    def _bring_up_to_date(self, connection: sqlite3.Connection) -> None:
        """Upgrade the file, all of it or nothing."""
        if _version(connection) == self.version:
            return
        with transaction(connection):
            version = _version(connection)
            if version < self.version:  # another process may have been quicker
                self.upgrade(connection, version)
                connection.execute(f"PRAGMA user_version = {self.version}")

    def _make(self, connection: sqlite3.Connection, path: Path) -> None:
        with transaction(connection):
            # Another process may have been quicker.
            if self._check(connection, path):
                for statement in self.statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self.application_id}")
                connection.execute(f"PRAGMA user_version = {self.version}")

    def _no_folder(self, path: Path) -> HeadraceError:
        return self.error(f"{path}: there is no folder {path.parent}; create it first")

    def _damaged(self, path: Path, why: str) -> HeadraceError:
        return self.error(
            f"{path}: it is damaged or not an SQLite file ({why}); nothing was written to it; move "
            "it away, restore it from a copy, or name another file"
        )

    def _refused(self, path: Path, error: Exception) -> HeadraceError:
        if is_damage(error):
            return self._damaged(path, str(error))
        return self.error(f"{path}: {error}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction: its work is done whole or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def is_damage(error: Exception) -> bool:
    """Whether SQLite found the file itself damaged, so that a retry does not help."""
    code = getattr(error, "sqlite_errorcode", 0)
    return (code & 0xFF) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log. SQLite does not wait for this lock by itself, and processes may
    start together."""
    for _ in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            time.sleep(_BUSY_S / _WAL_ATTEMPTS)
    connection.execute("PRAGMA journal_mode = WAL")
