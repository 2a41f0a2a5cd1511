"""The database of stored responses: a file that survives restarts, or memory.

A file that is damaged, newer or of another program is refused, and nothing is written to it. What
is deleted is overwritten with zeros, so that no text stays behind in the file.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headrace.errors import ConfigError
from headrace.sqlite_file import FileKind

SCHEMA_VERSION = 1
# "HRrs": tells our files from other programs' (PRAGMA application_id).
APPLICATION_ID = 0x48527273
_SALT_BYTES = 16

_COLUMNS = (
    ("number", "INTEGER PRIMARY KEY AUTOINCREMENT"),
    ("id", "TEXT NOT NULL UNIQUE"),
    ("owner", "BLOB NOT NULL"),
    ("previous", "INTEGER"),
    ("created_s", "INTEGER NOT NULL"),
    ("is_live", "INTEGER NOT NULL"),
    ("bytes", "INTEGER NOT NULL"),
    ("items", "BLOB NOT NULL"),
    ("body", "BLOB NOT NULL"),
)


def _columns_of(_version: int) -> list[str]:
    return [name for name, _ in _COLUMNS]


_STATEMENTS = (
    f"CREATE TABLE responses ({', '.join(' '.join(column) for column in _COLUMNS)})",
    # What counts and sizes are read from without a look at the texts.
    "CREATE INDEX responses_live ON responses (is_live, number)",
    "CREATE INDEX responses_previous ON responses (previous)",
    "CREATE INDEX responses_bytes ON responses (bytes)",
    "CREATE TABLE salt (value BLOB NOT NULL)",
    f"INSERT INTO salt VALUES (randomblob({_SALT_BYTES}))",
)

_KIND = FileKind(
    application_id=APPLICATION_ID,
    version=SCHEMA_VERSION,
    columns_of=_columns_of,
    statements=_STATEMENTS,
    purpose="stored responses",
    setting="--responses-store",
    error=ConfigError,
    table="responses",
    made_by="a server whose --responses-store names it",
)


def open_database(path: str | None) -> sqlite3.Connection:
    """A connection that one thread at a time may use; None: in memory.

    Raises ConfigError naming a file that cannot be used.
    """
    if path is None:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for statement in _STATEMENTS:
            connection.execute(statement)
        return connection
    connection = _KIND.open_for_writing(Path(path).expanduser())
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def salt_of(connection: sqlite3.Connection) -> bytes:
    """The random bytes that owners are hashed with, made with the database."""
    (salt,) = connection.execute("SELECT value FROM salt").fetchone()
    return bytes(salt)
