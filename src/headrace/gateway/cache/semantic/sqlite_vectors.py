"""Vectors in one SQLite file beside that of the answers, shared by processes of one machine.

A question is compared with all of its bucket, which is read each time, so that entries of other
processes count at once.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from headrace.gateway.cache.semantic.arithmetic import nearest_row
from headrace.gateway.cache.semantic.vectors import Near, Place, Row
from headrace.gateway.cache.sqlite_file import CacheFile, Schema, used_bytes

# "HRcv"
APPLICATION_ID = 0x48526376
_SCHEMA = Schema(
    APPLICATION_ID,
    1,
    (
        "CREATE TABLE questions (bucket BLOB NOT NULL, key BLOB NOT NULL, tenant BLOB NOT NULL, "
        "vector BLOB NOT NULL, wording BLOB NOT NULL, used_s REAL NOT NULL, "
        "expires_s REAL NOT NULL, PRIMARY KEY (bucket, key))",
        "CREATE INDEX questions_tenant ON questions (tenant, used_s)",
        "CREATE INDEX questions_used ON questions (used_s)",
        "CREATE INDEX questions_expire ON questions (expires_s)",
    ),
)
_DELETE_EXPIRED = (
    "DELETE FROM questions WHERE rowid IN "
    "(SELECT rowid FROM questions WHERE expires_s <= ? LIMIT 64)"
)
_DELETE_OLDEST_OF_TENANT = (
    "DELETE FROM questions WHERE rowid IN (SELECT rowid FROM questions WHERE tenant = ? "
    "ORDER BY used_s DESC LIMIT -1 OFFSET ?)"
)
_DELETE_OLDEST = (
    "DELETE FROM questions WHERE rowid IN (SELECT rowid FROM questions ORDER BY used_s LIMIT 16)"
)


class SqliteVectors:
    """A VectorStore in SQLite. Beyond max_entries of a tenant, or most_bytes of pages in use, the
    least recently used entries are dropped. A look-up over most_wait_s is a miss."""

    def __init__(
        self, path: Path, max_entries: int, most_bytes: int, *, most_wait_s: float = 1.0
    ) -> None:
        self._path = path
        self._max_entries = max_entries
        self._most_bytes = most_bytes
        self._file = CacheFile(path, _SCHEMA, "cache.path", most_wait_s=most_wait_s)

    def __repr__(self) -> str:
        return f"SqliteVectors({str(self._path)!r})"

    async def nearest(
        self, place: Place, vector: bytes, threshold: float, now_s: float
    ) -> Near | None:
        """See VectorStore."""

        def find(connection: sqlite3.Connection) -> Near | None:
            rows = connection.execute(
                "SELECT key, vector, wording FROM questions WHERE bucket = ? AND expires_s > ? "
                "AND length(vector) = ?",
                (place.bucket, now_s, len(vector)),
            ).fetchall()
            if not rows:
                return None
            matrix = np.frombuffer(b"".join(row[1] for row in rows), dtype="<f4")
            at, similarity = nearest_row(matrix.reshape(len(rows), -1), vector)
            if similarity < threshold:
                return None
            return Near(rows[at][0], similarity, rows[at][2])

        near = await self._file.ask(find)
        if near is not None:
            key = near.key

            def use(connection: sqlite3.Connection) -> None:
                connection.execute(
                    "UPDATE questions SET used_s = ? WHERE bucket = ? AND key = ?",
                    (now_s, place.bucket, key),
                )

            self._file.change(use)
        return near

    def add(self, place: Place, row: Row, *, now_s: float, expires_s: float) -> None:
        """See VectorStore."""

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute(_DELETE_EXPIRED, (now_s,))
            connection.execute(
                "INSERT OR REPLACE INTO questions VALUES (?, ?, ?, ?, ?, ?, ?)",
                (place.bucket, row.key, place.tenant, row.vector, row.wording, now_s, expires_s),
            )
            connection.execute(_DELETE_OLDEST_OF_TENANT, (place.tenant, self._max_entries))
            while used_bytes(connection) > self._most_bytes:
                if connection.execute(_DELETE_OLDEST).rowcount < 1:
                    break

        self._file.change(keep, len(row.vector))

    def drop(self, place: Place, key: bytes) -> None:
        """See VectorStore."""

        def forget(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM questions WHERE bucket = ? AND key = ?", (place.bucket, key)
            )

        self._file.change(forget)

    def close(self) -> None:
        """See VectorStore. The thread first writes what is queued."""
        self._file.close()

    async def written(self) -> None:
        """Wait until everything added before this is in the file."""
        await self._file.written()
