"""Answers in one SQLite file, which outlives the process and may be shared by several."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headrace.gateway.cache.sqlite_file import CacheFile, Schema, used_bytes

# "HRca"
APPLICATION_ID = 0x48526361
_SCHEMA = Schema(
    APPLICATION_ID,
    1,
    (
        "CREATE TABLE answers (key BLOB PRIMARY KEY, value BLOB NOT NULL, at_s REAL NOT NULL, "
        "expires_s REAL NOT NULL)",
        "CREATE INDEX answers_at ON answers (at_s)",
        "CREATE INDEX answers_expire ON answers (expires_s)",
    ),
)
# A few at a time, because requests wait for the thread.
_DELETE_EXPIRED = (
    "DELETE FROM answers WHERE key IN (SELECT key FROM answers WHERE expires_s <= ? LIMIT 64)"
)
_DELETE_OLDEST = "DELETE FROM answers WHERE key = (SELECT key FROM answers ORDER BY at_s LIMIT 1)"


class SqliteStore:
    """A CacheStore in SQLite. Beyond most_bytes of pages in use the oldest answers are dropped.

    A look-up over most_wait_s is a miss.
    """

    def __init__(self, path: Path, most_bytes: int, *, most_wait_s: float = 2.0) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._file = CacheFile(path, _SCHEMA, "cache.path", most_wait_s=most_wait_s)

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    async def get(self, key: bytes, now_s: float) -> bytes | None:
        """See CacheStore."""

        def find(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute(
                "SELECT value FROM answers WHERE key = ? AND expires_s > ?", (key, now_s)
            ).fetchone()
            return row[0] if row is not None and isinstance(row[0], bytes) else None

        return await self._file.ask(find)

    def put(self, key: bytes, value: bytes, *, now_s: float, expires_s: float) -> None:
        """See CacheStore. Nothing is stored while the queue is full."""
        if len(value) > self._most_bytes:
            return

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute(_DELETE_EXPIRED, (now_s,))
            connection.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (key, value, now_s, expires_s)
            )
            while used_bytes(connection) > self._most_bytes:
                if connection.execute(_DELETE_OLDEST).rowcount < 1:
                    break

        self._file.change(keep, len(value))

    def close(self) -> None:
        """See CacheStore. The thread first writes what is queued."""
        self._file.close()

    async def written(self) -> None:
        """Wait until everything put before this is in the file."""
        await self._file.written()
