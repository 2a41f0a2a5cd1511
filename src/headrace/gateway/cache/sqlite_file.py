"""A SQLite file of a cache, which outlives the process and may be shared by several.

One thread has the connection; the file is opened, or created, on first use. A failure means that
nothing is found, with one line in the log: a cache never makes a request fail.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from headrace.sqlite_file import make_private

logger = logging.getLogger(__name__)

# A miss is better than a long wait for another process.
_BUSY_S = 0.25
_MOST_WAITING = 256
_MOST_WAITING_BYTES = 32 * 2**20
_MOST_LOG_FILE_BYTES = 4 * 2**20

T = TypeVar("T")


class Schema(NamedTuple):
    """The schema of a cache's file."""

    application_id: int
    """Distinguishes it from other programs' files (PRAGMA application_id)."""
    version: int
    statements: tuple[str, ...]


class CacheFile:
    """A cache's file. `setting` names it in the log. A query over most_wait_s finds nothing."""

    def __init__(self, path: Path, schema: Schema, setting: str, *, most_wait_s: float) -> None:
        self._path = path
        self._schema = schema
        self._setting = setting
        self._most_wait_s = most_wait_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cache")
        self._lock = threading.Lock()
        self._waiting = 0
        self._waiting_bytes = 0
        self._closed = False
        # The fields below belong to the thread.
        self._connection: sqlite3.Connection | None = None
        self._has_failed = False
        self._is_useless = False

    async def ask(self, query: Callable[[sqlite3.Connection], T]) -> T | None:
        """The result of a query; None on any failure."""
        submitted = self._submit(query, 0, in_transaction=False)
        if submitted is None:
            return None
        try:
            async with asyncio.timeout(self._most_wait_s):
                return await asyncio.wrap_future(submitted)
        except TimeoutError:
            return None

    def change(self, work: Callable[[sqlite3.Connection], None], size: int = 0) -> None:
        """Run it in a transaction, a moment later; it is dropped if the queue is full."""
        self._submit(work, size, in_transaction=True)

    def close(self) -> None:
        """Close the file once the thread has done what is queued."""
        if not self._closed:
            self._closed = True
            self._thread.submit(self._close)
            self._thread.shutdown(wait=False)

    async def written(self) -> None:
        """Wait until everything queued before this is done."""
        done: Future[None] = self._thread.submit(lambda: None)
        await asyncio.wrap_future(done)

    def _submit(
        self, work: Callable[[sqlite3.Connection], T], size: int, *, in_transaction: bool
    ) -> Future[T | None] | None:
        if not self._enters(size):
            return None
        try:
            submitted = self._thread.submit(self._run, work, in_transaction)
        except RuntimeError:  # closed at this moment
            self._left(size)
            return None
        submitted.add_done_callback(lambda _: self._left(size))
        return submitted

    def _run(self, work: Callable[[sqlite3.Connection], T], in_transaction: bool) -> T | None:
        try:
            connection = self._open()
            if connection is None:
                return None
            if not in_transaction:
                return work(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError, ValueError) as error:
            self._failed(error)
        return None

    def _enters(self, size: int) -> bool:
        with self._lock:
            if (
                self._closed
                or self._waiting >= _MOST_WAITING
                or self._waiting_bytes + size > _MOST_WAITING_BYTES
            ):
                return False
            self._waiting += 1
            self._waiting_bytes += size
            return True

    def _left(self, size: int) -> None:
        with self._lock:
            self._waiting -= 1
            self._waiting_bytes -= size

    def _open(self) -> sqlite3.Connection | None:
        if self._connection is not None or self._is_useless:
            return self._connection
        # Answers are private.
        make_private(self._path)
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            problem = _made(connection, self._schema)
            connection.execute("COMMIT" if problem is None else "ROLLBACK")
            if problem is not None:
                # It belongs to another program or version, so it must not be written to.
                self._is_useless = True
                raise ValueError(problem)
            connection.execute("PRAGMA journal_mode = WAL")
            # After a crash the last answers may be missing, which costs a request each.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {_MOST_LOG_FILE_BYTES}")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failed(self, error: Exception) -> None:
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        )
        if damaged:
            self._is_useless = True
            self._close()
        if not self._has_failed or damaged:
            self._has_failed = True
            logger.warning(
                "the cache %s failed; requests go on without it (%s)%s",
                self._path,
                error,
                f"; delete the file, or name another in {self._setting}"
                if self._is_useless
                else "",
            )


def used_bytes(connection: sqlite3.Connection) -> int:
    """The size of the file without free pages."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    used: int = (pages - free) * size
    return used


def _made(connection: sqlite3.Connection, schema: Schema) -> str | None:
    """Create the tables if the file is empty; return what is wrong with any other file."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        for statement in schema.statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {schema.application_id}")
        connection.execute(f"PRAGMA user_version = {schema.version}")
        return None
    if application != schema.application_id:
        return "it is a database of another program"
    if version != schema.version:
        return f"its schema has version {version}, not {schema.version}"
    return None
