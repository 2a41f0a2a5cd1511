"""Answers in one SQLite file, which outlives the process and may be shared by several.

One thread has the connection; the file is opened, or made, when it is first wanted. Whatever goes
wrong is a miss and one line in the log: a cache is never why a request fails.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

logger = logging.getLogger(__name__)

# "HRca": tells our files from other programs' (PRAGMA application_id).
APPLICATION_ID = 0x48526361
_SCHEMA_VERSION = 1
# A miss is better than a long wait for another process.
_BUSY_S = 0.25
_MOST_WAITING = 256
_MOST_WAITING_BYTES = 32 * 2**20
_MOST_LOG_FILE_BYTES = 4 * 2**20
_SCHEMA = (
    "CREATE TABLE answers (key BLOB PRIMARY KEY, value BLOB NOT NULL, at_s REAL NOT NULL, "
    "expires_s REAL NOT NULL)",
    "CREATE INDEX answers_at ON answers (at_s)",
    "CREATE INDEX answers_expire ON answers (expires_s)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)


# A few at a time: who asks for an answer waits for the thread.
_DELETE_EXPIRED = (
    "DELETE FROM answers WHERE key IN (SELECT key FROM answers WHERE expires_s <= ? LIMIT 64)"
)


class SqliteStore:
    """A CacheStore. When the file's pages in use have most_bytes, those kept first go.

    most_wait_s: what takes longer to be found is a miss.
    """

    def __init__(self, path: Path, most_bytes: int, *, most_wait_s: float = 2.0) -> None:
        self._most_wait_s = most_wait_s
        self._path = path
        self._most_bytes = most_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cache")
        self._lock = threading.Lock()
        self._waiting = 0
        self._waiting_bytes = 0
        self._closed = False
        # Below: of the thread alone.
        self._connection: sqlite3.Connection | None = None
        self._has_failed = False
        self._is_useless = False

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    async def get(self, key: bytes, now_s: float) -> bytes | None:
        """See CacheStore."""
        if not self._enters(0):
            return None
        try:
            found = self._thread.submit(self._get, key, now_s)
        except RuntimeError:  # closed in this moment
            self._left(0)
            return None
        found.add_done_callback(lambda _: self._left(0))
        try:
            async with asyncio.timeout(self._most_wait_s):
                return await asyncio.wrap_future(found)
        except TimeoutError:
            return None

    def put(self, key: bytes, value: bytes, *, now_s: float, expires_s: float) -> None:
        """See CacheStore. What more than the queue holds is not kept."""
        size = len(value)
        if size > self._most_bytes or not self._enters(size):
            return
        try:
            written = self._thread.submit(self._put, key, value, now_s, expires_s)
        except RuntimeError:
            self._left(size)
            return
        written.add_done_callback(lambda _: self._left(size))

    def close(self) -> None:
        """See CacheStore. What waits is written first, by the thread."""
        if not self._closed:
            self._closed = True
            self._thread.submit(self._close)
            self._thread.shutdown(wait=False)

    async def written(self) -> None:
        """Everything put before this is in the file."""
        done: Future[None] = self._thread.submit(lambda: None)
        await asyncio.wrap_future(done)

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

    def _get(self, key: bytes, now_s: float) -> bytes | None:
        try:
            connection = self._open()
            if connection is None:
                return None
            row = connection.execute(
                "SELECT value FROM answers WHERE key = ? AND expires_s > ?", (key, now_s)
            ).fetchone()
        except (sqlite3.Error, OSError, ValueError) as error:
            self._failed(error)
            return None
        value = None if row is None else row[0]
        return value if isinstance(value, bytes) else None

    def _put(self, key: bytes, value: bytes, now_s: float, expires_s: float) -> None:
        try:
            connection = self._open()
            if connection is None:
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(_DELETE_EXPIRED, (now_s,))
                connection.execute(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)",
                    (key, value, now_s, expires_s),
                )
                while _used_bytes(connection) > self._most_bytes:
                    gone = connection.execute(
                        "DELETE FROM answers WHERE key = (SELECT key FROM answers ORDER BY at_s "
                        "LIMIT 1)"
                    )
                    if gone.rowcount < 1:
                        break
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError, ValueError) as error:
            self._failed(error)

    def _open(self) -> sqlite3.Connection | None:
        if self._connection is not None or self._is_useless:
            return self._connection
        # Answers are nobody else's business.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            problem = _made(connection)
            connection.execute("COMMIT" if problem is None else "ROLLBACK")
            if problem is not None:
                # Of another program, or of another headrace: it is not ours to write to.
                self._is_useless = True
                raise ValueError(problem)
            connection.execute("PRAGMA journal_mode = WAL")
            # After a crash the last answers may be gone, which costs a request each.
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
                "the cache %s failed, requests go on without it (%s)%s",
                self._path,
                error,
                "; delete the file, or name another in cache.path" if self._is_useless else "",
            )


def _made(connection: sqlite3.Connection) -> str | None:
    """Our tables in it, made if it is empty. What is wrong with a file that is not ours."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        for statement in _SCHEMA:
            connection.execute(statement)
        return None
    if application != APPLICATION_ID:
        return "it is a database of something else"
    if version != _SCHEMA_VERSION:
        return f"its schema has version {version}, not {_SCHEMA_VERSION}"
    return None


def _used_bytes(connection: sqlite3.Connection) -> int:
    """Of the file, without pages that are free."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    used: int = (pages - free) * size
    return used
