"""The ledger's table, and whether a file is one of ours and whole."""

from __future__ import annotations

import sqlite3

from headrace.gateway.ledger.errors import LedgerError
from headrace.sqlite_file import FileKind

SCHEMA_VERSION = 4
# "HRle": tells our files from other programs' (PRAGMA application_id).
APPLICATION_ID = 0x48526C65

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
    ("assigned", "TEXT NOT NULL DEFAULT ''"),
    ("guardrails", "TEXT NOT NULL DEFAULT '[]'"),
    ("prompt", "TEXT NOT NULL DEFAULT ''"),
    ("ignored", "TEXT NOT NULL DEFAULT '[]'"),
    ("skipped", "TEXT NOT NULL DEFAULT '[]'"),
    ("dropped", "TEXT NOT NULL DEFAULT '[]'"),
)
# The number of columns that files of a version lack.
_LACKING = {1: 9, 2: 3, 3: 1}
COLUMN_NAMES = tuple(name for name, _ in COLUMNS)

_SCHEMA = (
    "CREATE TABLE requests (number INTEGER PRIMARY KEY, "
    + ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
    + ")",
    "CREATE INDEX requests_at ON requests (at_ms)",
)


def _columns_of(version: int) -> list[str]:
    return ["number", *COLUMN_NAMES[: len(COLUMN_NAMES) - _LACKING.get(version, 0)]]


def _upgrade(connection: sqlite3.Connection, version: int) -> None:
    """A file of an older version gets the columns it lacks."""
    for name, kind in COLUMNS[-_LACKING[version] :]:
        connection.execute(f"ALTER TABLE requests ADD COLUMN {name} {kind}")


FILE = FileKind(
    application_id=APPLICATION_ID,
    version=SCHEMA_VERSION,
    columns_of=_columns_of,
    statements=_SCHEMA,
    purpose="the ledger",
    setting="ledger.path",
    error=LedgerError,
    upgrade=_upgrade,
)
open_for_writing = FILE.open_for_writing
check_file = FILE.check_file
reading = FILE.reading
