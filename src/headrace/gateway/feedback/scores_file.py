"""Scores in the ledger's file, in a table of their own."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.gateway.feedback.score import Score
from headrace.gateway.ledger.schema import open_for_writing
from headrace.sqlite_file import transaction

_COLUMNS = ("request_id", "name", "key", "score", "comment", "model", "target", "variant", "at_ms",
            "given_ms")  # fmt: skip
_TABLE = (
    "CREATE TABLE IF NOT EXISTS feedback (request_id TEXT NOT NULL, name TEXT NOT NULL, "
    "key TEXT NOT NULL, score REAL NOT NULL, comment TEXT NOT NULL, model TEXT NOT NULL, "
    "target TEXT NOT NULL, variant TEXT NOT NULL, at_ms INTEGER NOT NULL, "
    "given_ms INTEGER NOT NULL, PRIMARY KEY (request_id, name, key)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS feedback_at ON feedback (at_ms)",
    # Without it each score would read the whole ledger to find its request.
    "CREATE INDEX IF NOT EXISTS requests_id ON requests (id)",
)
_KEEP = (
    f"INSERT OR REPLACE INTO feedback ({', '.join(_COLUMNS)}) "
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
# Names are the client's own; without an end they would fill the disk.
MOST_NAMES = 32
# The ledger's thread may be writing.
_BUSY_S = 5.0
# So many old ones go with each new one, so that there are never more than come in the time.
_DELETED_AT_ONCE = 100


class TooManyScoresError(Exception):
    """A key has given a request as many scores as it may."""


class Rated(NamedTuple):
    """A request of the ledger that a score is of."""

    key: str
    model: str
    target: str
    variant: str
    at_ms: int


class ScoresFile:
    """Scores in the ledger's file at `path`, for any thread, while others write to it. Raises
    LedgerError and sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._is_ready = False

    def find(self, request_id: str) -> list[Rated]:
        """The requests with this id, the newest first: clients may choose it."""
        with self._open() as connection:
            rows = connection.execute(
                "SELECT key, model, target, variant, at_ms FROM requests "
                "WHERE id = ? AND purpose = '' ORDER BY at_ms DESC",
                (request_id,),
            )
            return [Rated(*row) for row in rows]

    def keep(self, score: Score, before_ms: int | None) -> bool:
        """Whether it takes the place of another. before_ms: older requests' scores are deleted,
        some at a time; None: none are. Raises TooManyScoresError."""
        values = tuple(getattr(score, name) for name in _COLUMNS)
        with self._open() as connection, transaction(connection):
            found = connection.execute(
                "SELECT 1 FROM feedback WHERE request_id = ? AND name = ? AND key = ?", values[:3]
            ).fetchone()
            if found is None:
                (names,) = connection.execute(
                    "SELECT COUNT(*) FROM feedback WHERE request_id = ? AND key = ?",
                    (score.request_id, score.key),
                ).fetchone()
                if names >= MOST_NAMES:
                    raise TooManyScoresError
            connection.execute(_KEEP, values)
            if before_ms is not None:
                connection.execute(
                    "DELETE FROM feedback WHERE (request_id, name, key) IN (SELECT request_id, "
                    "name, key FROM feedback WHERE at_ms < ? LIMIT ?)",
                    (before_ms, _DELETED_AT_ONCE),
                )
        return found is not None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self._prepare()
        with closing(
            sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
        ) as connection:
            yield connection

    def _prepare(self) -> None:
        """Once: the file is looked through, and has the table."""
        with self._lock:
            if not self._is_ready:
                with closing(open_for_writing(self._path)) as connection:
                    for statement in _TABLE:
                        connection.execute(statement)
                self._is_ready = True
