"""The rows of a file of accounts, for the one thread that reads and writes them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.errors import ConfigError, shown
from headrace.gateway.accounts.counters import MOST_OF_OWNER, Mark, Spent
from headrace.gateway.accounts.errors import StoreError
from headrace.gateway.accounts.records import Group, GroupLevel, KeyRecord, Parent, Records
from headrace.gateway.accounts.sqlite_file import open_file
from headrace.gateway.accounts.store import SpentMore

T = TypeVar("T")
ParentElsewhere = Callable[[Parent], bool]
"""Whether a group that is not in the store is somewhere else: in the configuration."""

# To find the oldest marks of an owner who has all that are kept costs milliseconds, so one in a
# hundred may be there beside them.
_MARKS_PER_SPARE = 100


class SqliteRows:
    """A database of rows, opened and closed once each, by the thread that uses it. Raises
    StoreError for what contradicts what is there, sqlite3.Error and MsgspecError for a file that is
    at fault.
    """

    def __init__(self, path: Path, parent_elsewhere: ParentElsewhere) -> None:
        self._path = path
        self._parent_elsewhere = parent_elsewhere
        self._file: sqlite3.Connection | None = None
        self._seen_version = -1
        self._seen_generation = -1
        self._read_generation = -1
        self._wrote = False
        self._unpruned: dict[str, int] = {}
        """Marks that came for each owner since theirs were pruned; what came before this process is
        not known."""

    def open(self) -> None:
        """See `open_file`."""
        self._file = open_file(self._path)

    def close(self) -> None:
        """Close the file; nothing can be read afterwards."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._file is None:
            raise StoreError(f"{self._path}: the store is closed")
        return self._file

    @contextmanager
    def _change(self, *, of_records: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction. of_records: whether other processes have to read again."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            if of_records:
                connection.execute("UPDATE generation SET number = number + 1")
                self._wrote = True
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def read(self) -> Records:
        """All groups and keys."""
        connection = self._connection
        connection.execute("BEGIN")
        try:
            (generation,) = connection.execute("SELECT number FROM generation").fetchone()
            self._read_generation = self._seen_generation = generation
            return _all(connection)
        finally:
            connection.execute("COMMIT")

    def changed(self) -> bool:
        """Whether there is another generation than was read."""
        connection = self._connection
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._seen_version or self._wrote:
            row = connection.execute("SELECT number FROM generation").fetchone()
            (self._seen_generation,) = row
            self._seen_version = version
            self._wrote = False
        return self._seen_generation != self._read_generation

    def put_group(self, group: Group) -> None:
        """Make it, or put it in place of the one with its name."""
        with self._change() as connection:
            self._check_parent(connection, group.parent, f"{group.level} {shown(group.name)}")
            connection.execute(
                "INSERT INTO groups (level, name, body) VALUES (?, ?, ?) "
                "ON CONFLICT (level, name) DO UPDATE SET body = excluded.body",
                (group.level, group.name, msgspec.json.encode(group)),
            )

    def delete_group(self, level: GroupLevel, name: str) -> None:
        """Delete a group that has no members."""
        with self._change() as connection:
            records = _all(connection)
            children = [(group.name, group.parent) for group in records.groups]
            children += [(key.id, key.parent) for key in records.keys]
            for child, parent in children:
                if parent == Parent(level, name):
                    raise StoreError(
                        f"{level} {shown(name)}: {shown(child)} belongs to it; delete "
                        f"{shown(child)} first"
                    )
            done = connection.execute(
                "DELETE FROM groups WHERE level = ? AND name = ?", (level, name)
            )
            if done.rowcount == 0:
                raise _no(level, name)

    def block_group(self, level: str, name: str, *, blocked: bool) -> None:
        """Or let it through again."""
        with self._change() as connection:
            row = connection.execute(
                "SELECT body FROM groups WHERE level = ? AND name = ?", (level, name)
            ).fetchone()
            if row is None:
                raise _no(level, name)
            group = msgspec.structs.replace(_decoded(Group, row[0]), blocked=blocked)
            connection.execute(
                "UPDATE groups SET body = ? WHERE level = ? AND name = ?",
                (msgspec.json.encode(group), level, name),
            )

    def add_key(self, record: KeyRecord) -> None:
        """A new one."""
        with self._change() as connection:
            self._check_parent(connection, record.parent, "a key")
            connection.execute(
                "INSERT INTO keys (id, body) VALUES (?, ?)",
                (record.id, msgspec.json.encode(record)),
            )

    def change_key(self, id: str, change: Callable[[KeyRecord], KeyRecord]) -> None:
        """Change a key in one transaction."""
        with self._change() as connection:
            row = connection.execute("SELECT body FROM keys WHERE id = ?", (id,)).fetchone()
            if row is None:
                raise _no("key", id)
            record = change(_decoded(KeyRecord, row[0]))
            connection.execute(
                "UPDATE keys SET body = ? WHERE id = ?", (msgspec.json.encode(record), id)
            )

    def delete_key(self, id: str) -> None:
        """Delete a key for good."""
        with self._change() as connection:
            if connection.execute("DELETE FROM keys WHERE id = ?", (id,)).rowcount == 0:
                raise _no("key", id)

    def add_spent(self, more: Sequence[SpentMore], at_ms: int) -> None:
        """Add to what was spent, and forget what no window counts at `at_ms`."""
        with self._change(of_records=False) as connection:
            connection.executemany(
                "INSERT INTO spent (meter_id, bucket, amount, leaves_ms) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (meter_id, bucket) DO UPDATE SET amount = amount + excluded.amount",
                more,
            )
            connection.execute("DELETE FROM spent WHERE leaves_ms <= ?", (at_ms,))

    def spent(self, at_ms: int, of: Collection[str] | None = None) -> list[Spent]:
        """Spending that counts at `at_ms`. of: ids of meters, some hundreds at most; None for "
        "all."""
        text = (
            "SELECT meter_id, bucket, amount FROM spent WHERE (leaves_ms IS NULL OR leaves_ms > ?)"
        )
        if of is not None:
            text += f" AND meter_id IN ({','.join('?' * len(of))})"
        return [Spent(*row) for row in self._connection.execute(text, (at_ms, *(of or ())))]

    def add_marks(
        self, marks: Sequence[Mark], at_ms: int, most_of_owner: int = MOST_OF_OWNER
    ) -> None:
        """Keep the newest of each owner, and forget those that have ended at `at_ms`."""
        spare = most_of_owner // _MARKS_PER_SPARE
        came = Counter(mark.owner for mark in marks)
        unpruned = {owner: self._unpruned.get(owner, spare) + n for owner, n in came.items()}
        full = [owner for owner, n in unpruned.items() if n > spare]
        with self._change(of_records=False) as connection:
            connection.executemany(
                "INSERT INTO marks (owner, id, until_ms) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET until_ms = excluded.until_ms",
                marks,
            )
            connection.execute("DELETE FROM marks WHERE until_ms <= ?", (at_ms,))
            connection.executemany(
                "DELETE FROM marks WHERE owner = ?1 AND until_ms < (SELECT until_ms FROM marks "
                "WHERE owner = ?1 ORDER BY until_ms DESC LIMIT 1 OFFSET ?2)",
                [(owner, most_of_owner - 1) for owner in full],
            )
        self._unpruned |= unpruned | dict.fromkeys(full, 0)

    def marks(self, ids: Sequence[str], at_ms: int) -> frozenset[str]:
        """The subset of the ids that are in the store at `at_ms`."""
        text = "SELECT 1 FROM marks WHERE id = ? AND until_ms > ?"
        execute = self._connection.execute
        return frozenset(id for id in ids if execute(text, (id, at_ms)).fetchone())

    def _check_parent(
        self, connection: sqlite3.Connection, parent: Parent | None, child: str
    ) -> None:
        if parent is None:
            return
        found = connection.execute(
            "SELECT 1 FROM groups WHERE level = ? AND name = ?", (parent.level, parent.name)
        ).fetchone()
        if found is None and not self._parent_elsewhere(parent):
            raise StoreError(
                f"{child}: there is no {parent.level} {shown(parent.name)} for it to belong to; "
                f"write it into access.{parent.level}s of the gateway's file first"
            )


def _all(connection: sqlite3.Connection) -> Records:
    groups = connection.execute("SELECT body FROM groups ORDER BY level, name").fetchall()
    keys = connection.execute("SELECT body FROM keys ORDER BY id").fetchall()
    return Records(
        tuple(_decoded(Group, body) for (body,) in groups),
        tuple(_decoded(KeyRecord, body) for (body,) in keys),
    )


def _decoded(kind: type[T], body: bytes) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except ConfigError as error:
        raise msgspec.DecodeError(str(error)) from error


def _no(level: str, name: str) -> StoreError:
    return StoreError(f"there is no {level} {shown(name)} in the store")
