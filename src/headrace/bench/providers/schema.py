"""The tables of a providers database, and how one is opened, made and recognized.

application_id tells such a file from any other of SQLite's, user_version is the schema's version. A
newer version than this program knows is refused; there is no older one yet.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from headrace.errors import ConfigError

APPLICATION_ID = 0x48524250
"""Four letters: HRBP."""
VERSION = 1

# Another process may be reading a page's worth of rows.
_WAIT_S = 30.0

_TABLES = """
CREATE TABLE workloads (
    id INTEGER PRIMARY KEY,
    facts TEXT NOT NULL UNIQUE              -- JSON: what every provider is sent
);
CREATE TABLE providers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    facts TEXT NOT NULL,                    -- JSON: the endpoint, without secrets
    said TEXT NOT NULL,                     -- JSON: prices, region, notes as the file said last
    UNIQUE (name, facts)
);
CREATE TABLE sessions (                     -- a process that measured
    id INTEGER PRIMARY KEY,
    workload INTEGER NOT NULL REFERENCES workloads,
    began_at REAL NOT NULL,                 -- seconds since the epoch, as all *_at
    ended_at REAL,
    origin_at REAL NOT NULL,                -- when slot 0 was due
    interval_s REAL NOT NULL,
    duration_s REAL,
    providers TEXT NOT NULL,                -- JSON: ids of the file's providers, in its order
    about TEXT NOT NULL                     -- JSON: version, machine
);
CREATE TABLE rounds (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions,
    workload INTEGER NOT NULL REFERENCES workloads,
    number INTEGER NOT NULL UNIQUE,         -- from 0, of the database
    slot INTEGER,                           -- of the schedule; NULL: asked for with --once
    due_at REAL NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL                           -- NULL: not all providers have been measured
);
CREATE TABLE visits (                       -- one provider in one round
    id INTEGER PRIMARY KEY,
    round INTEGER NOT NULL REFERENCES rounds,
    provider INTEGER NOT NULL REFERENCES providers,
    place INTEGER NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    outcome TEXT NOT NULL,
    message TEXT NOT NULL,
    client_bound INTEGER
);
CREATE TABLE requests (                     -- times in ns from the visit's start
    visit INTEGER NOT NULL REFERENCES visits,
    phase TEXT NOT NULL,                    -- single: one after another; batch: all at once
    position INTEGER NOT NULL,              -- which prompt
    intended_ns INTEGER NOT NULL,
    begun_ns INTEGER,
    sent_ns INTEGER,
    headers_ns INTEGER,
    end_ns INTEGER,
    ttft_ns REAL,                           -- latencies from sent_ns
    ttfot_ns REAL,
    tpot_ns REAL,
    e2e_ns REAL,
    stall_ns REAL,
    queue_ns INTEGER,
    chunks INTEGER NOT NULL,
    characters INTEGER NOT NULL,
    first_characters INTEGER NOT NULL,
    prompt_tokens INTEGER,
    output_tokens INTEGER,
    told_tokens INTEGER,                    -- output as the server counted
    reasoning_tokens INTEGER,
    cached_tokens INTEGER,
    output_tokens_asked INTEGER,
    status INTEGER,
    error TEXT,
    message TEXT,
    finish_reason TEXT,
    new_connection INTEGER NOT NULL,
    PRIMARY KEY (visit, phase, position)
) WITHOUT ROWID;
CREATE INDEX visits_by_round ON visits (round);
"""


def open_to_write(path: Path) -> sqlite3.Connection:
    """The database, made where there is none. ConfigError for a file that is something else."""
    try:
        connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
        try:
            is_new = not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            if is_new:
                _make(connection)
            else:
                _check(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            # Without it the last round may be lost with the power, but nothing before it.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise _refusal(path, error) from error
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """The database as it is, also while another process writes it."""
    if not path.is_file():
        raise ConfigError(f"--db {path}: the file does not exist; measure first, or name another")
    try:
        connection = _read_only(path)
        try:
            _check(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise _refusal(path, error) from error
    return connection


def _read_only(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path.resolve()))}"
    # Not mode=ro: whoever is the last to close may then tidy the WAL away.
    connection = _connected(f"{address}?mode=rw")
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA schema_version").fetchall()
    except sqlite3.OperationalError:
        # In a folder that cannot be written there can be no shared memory for a WAL. Without
        # anything in a WAL the file alone is all there is.
        connection.close()
        wal = path.with_name(path.name + "-wal")
        if wal.exists() and wal.stat().st_size:
            raise
        connection = _connected(f"{address}?mode=ro&immutable=1")
    return connection


def _connected(address: str) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=True, timeout=_WAIT_S, isolation_level=None)


def _make(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"BEGIN; {_TABLES} PRAGMA application_id = {APPLICATION_ID}; "
        f"PRAGMA user_version = {VERSION}; COMMIT;"
    )


def _check(connection: sqlite3.Connection, path: Path) -> None:
    kind = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if kind != APPLICATION_ID:
        raise ConfigError(
            f"--db {path} is not a database of `headrace bench providers`; name another file"
        )
    if version != VERSION:
        raise ConfigError(
            f"--db {path} has version {version} of the tables, and this program reads "
            f"{VERSION}; use a newer headrace, or name another file"
        )


def _refusal(path: Path, error: sqlite3.Error) -> ConfigError:
    return ConfigError(f"--db {path}: {error}; name a file that can be read and written")
