"""Accounts in one SQLite file, written by one thread with a bounded queue.

Groups and keys are rows of JSON: they are read as a whole and looked up in memory. Several
processes share the file (write-ahead log); each sees the others' changes by a generation number,
which is looked at only when SQLite says that somebody wrote (PRAGMA data_version).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.errors import ConfigError, shown
from headrace.gateway.accounts.counters import Spent
from headrace.gateway.accounts.errors import StoreBusyError, StoreError
from headrace.gateway.accounts.key import NewKey, RandomBytes, Secret, make_key, secret_of
from headrace.gateway.accounts.records import Group, GroupLevel, KeyRecord, Parent, Records
from headrace.gateway.accounts.sqlite_file import open_file
from headrace.gateway.accounts.store import SpentMore
from headrace.gateway.accounts.terms import NO_TERMS, Level, Terms

DEFAULT_MOST_QUEUED = 1000
_ID_BYTES = 6
_NS_PER_MS = 1_000_000

T = TypeVar("T")
ParentElsewhere = Callable[[Parent], bool]
"""Whether a group that is not in the store is somewhere else: in the configuration."""


class SqliteStore:
    """An AccountStore in a file; made by `open`."""

    def __init__(
        self,
        path: Path,
        *,
        now_ns: Callable[[], int],
        random_bytes: RandomBytes,
        parent_elsewhere: ParentElsewhere,
        most_queued: int,
    ) -> None:
        self._path = path
        self._now_ns = now_ns
        self._random_bytes = random_bytes
        self._parent_elsewhere = parent_elsewhere
        self._most_queued = most_queued
        self._queued = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accounts")
        # Below: of the thread alone.
        self._connection: sqlite3.Connection | None = None
        self._seen_version = -1
        self._seen_generation = -1
        self._read_generation = -1
        self._wrote = False

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        now_ns: Callable[[], int],
        random_bytes: RandomBytes,
        parent_elsewhere: ParentElsewhere = lambda parent: False,
        most_queued: int = DEFAULT_MOST_QUEUED,
    ) -> SqliteStore:
        """Open the file, or make it where there is none.

        Raises StoreError for one that is damaged, newer, or not of accounts; it is left as it is.
        """
        store = cls(
            path,
            now_ns=now_ns,
            random_bytes=random_bytes,
            parent_elsewhere=parent_elsewhere,
            most_queued=most_queued,
        )
        try:
            await store._run(_open)
        except BaseException:
            store._thread.shutdown(wait=False)
            raise
        return store

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    async def read(self) -> Records:
        """See AccountStore."""
        return await self._run(_read)

    async def changed(self) -> bool:
        """See AccountStore."""
        return await self._run(_changed)

    async def put_group(self, group: Group) -> None:
        """See AccountStore."""
        await self._run(lambda store: _put_group(store, group))

    async def delete_group(self, level: GroupLevel, name: str) -> None:
        """See AccountStore."""
        await self._run(lambda store: _delete_group(store, level, name))

    async def create_key(
        self,
        *,
        parent: Parent | None = None,
        terms: Terms = NO_TERMS,
        label: str = "",
        expires_ms: int | None = None,
    ) -> NewKey:
        """See AccountStore."""
        key = make_key(self._random_bytes)
        secret = secret_of(key)
        record = KeyRecord(
            id=f"key_{self._random_bytes(_ID_BYTES).hex()}",
            secrets=(secret,),
            parent=parent,
            label=label,
            terms=terms,
            created_ms=self._now_ms(),
            expires_ms=expires_ms,
        )
        await self._run(lambda store: _add_key(store, record))
        return NewKey(key, record.id, secret)

    async def rotate_key(self, id: str, *, overlap_ms: int = 0) -> NewKey:
        """See AccountStore."""
        if overlap_ms < 0:
            raise StoreError(f"overlap_ms: {shown(overlap_ms)} is below 0")
        key = make_key(self._random_bytes)
        secret = secret_of(key)
        now_ms = self._now_ms()

        def rotated(record: KeyRecord) -> KeyRecord:
            kept = [_ending(old, now_ms + overlap_ms) for old in record.secrets]
            still = tuple(old for old in kept if (old.expires_ms or 0) > now_ms)
            return msgspec.structs.replace(record, secrets=(secret, *still))

        await self._change_key(id, rotated)
        return NewKey(key, id, secret)

    async def change_key(
        self, id: str, *, terms: Terms | None = None, label: str | None = None
    ) -> None:
        """See AccountStore."""

        def changed(record: KeyRecord) -> KeyRecord:
            return msgspec.structs.replace(
                record,
                terms=record.terms if terms is None else terms,
                label=record.label if label is None else label,
            )

        await self._change_key(id, changed)

    async def block(self, level: Level, name: str, *, blocked: bool = True) -> None:
        """See AccountStore."""
        if level == "key":
            await self._change_key(name, lambda key: msgspec.structs.replace(key, blocked=blocked))
        else:
            await self._run(lambda store: _block_group(store, level, name, blocked))

    async def expire_key(self, id: str, *, at_ms: int | None) -> None:
        """See AccountStore."""
        await self._change_key(id, lambda key: msgspec.structs.replace(key, expires_ms=at_ms))

    async def delete_key(self, id: str) -> None:
        """See AccountStore."""
        await self._run(lambda store: _delete_key(store, id))

    async def add_spent(self, more: Sequence[SpentMore]) -> None:
        """See AccountStore."""
        now_ms = self._now_ms()
        await self._run(lambda store: _add_spent(store, more, now_ms))

    async def spent(self, *, at_ms: int) -> list[Spent]:
        """See AccountStore."""
        return await self._run(lambda store: _spent(store, at_ms))

    async def close(self) -> None:
        """See AccountStore."""
        await self._run(_close)
        self._thread.shutdown(wait=False)

    def _now_ms(self) -> int:
        return self._now_ns() // _NS_PER_MS

    async def _change_key(self, id: str, change: Callable[[KeyRecord], KeyRecord]) -> None:
        await self._run(lambda store: _change_key(store, id, change))

    async def _run(self, work: Callable[[SqliteStore], T]) -> T:
        """Do it in the thread; what has begun there ends, also if nobody waits any more."""
        if self._queued >= self._most_queued:
            raise StoreBusyError(
                f"{self._path}: {self._queued} changes wait to be written; try again"
            )
        self._queued += 1
        try:
            future = self._thread.submit(self._do, work)
        except RuntimeError as error:
            self._queued -= 1
            raise StoreError(f"{self._path}: it is closed") from error
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _from_thread(loop, self._done))
        return await asyncio.wrap_future(future)

    def _done(self) -> None:
        self._queued -= 1

    def _do(self, work: Callable[[SqliteStore], T]) -> T:
        try:
            return work(self)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self._path}: {error}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self._path}: a row of it is damaged; restore the file from a copy"
            ) from error


def _from_thread(loop: asyncio.AbstractEventLoop, done: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(done)
    except RuntimeError:
        # The loop is closed, and with it whoever would ask again.
        return


def _open(store: SqliteStore) -> None:
    store._connection = open_file(store._path)


def _close(store: SqliteStore) -> None:
    if store._connection is not None:
        store._connection.close()
        store._connection = None


def _opened(store: SqliteStore) -> sqlite3.Connection:
    if store._connection is None:
        raise StoreError(f"{store._path}: it is closed")
    return store._connection


@contextmanager
def _change(store: SqliteStore, *, of_records: bool = True) -> Iterator[sqlite3.Connection]:
    """One transaction. of_records: others have to read again."""
    connection = _opened(store)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        if of_records:
            connection.execute("UPDATE generation SET number = number + 1")
            store._wrote = True
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _read(store: SqliteStore) -> Records:
    connection = _opened(store)
    connection.execute("BEGIN")
    try:
        (generation,) = connection.execute("SELECT number FROM generation").fetchone()
        store._read_generation = store._seen_generation = generation
        return _all(connection)
    finally:
        connection.execute("COMMIT")


def _all(connection: sqlite3.Connection) -> Records:
    groups = connection.execute("SELECT body FROM groups ORDER BY level, name").fetchall()
    keys = connection.execute("SELECT body FROM keys ORDER BY id").fetchall()
    return Records(
        tuple(_decoded(Group, body) for (body,) in groups),
        tuple(_decoded(KeyRecord, body) for (body,) in keys),
    )


def _changed(store: SqliteStore) -> bool:
    connection = _opened(store)
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    if version != store._seen_version or store._wrote:
        row = connection.execute("SELECT number FROM generation").fetchone()
        (store._seen_generation,) = row
        store._seen_version = version
        store._wrote = False
    return store._seen_generation != store._read_generation


def _put_group(store: SqliteStore, group: Group) -> None:
    with _change(store) as connection:
        _check_parent(store, connection, group.parent, f"{group.level} {shown(group.name)}")
        connection.execute(
            "INSERT INTO groups (level, name, body) VALUES (?, ?, ?) "
            "ON CONFLICT (level, name) DO UPDATE SET body = excluded.body",
            (group.level, group.name, msgspec.json.encode(group)),
        )


def _delete_group(store: SqliteStore, level: GroupLevel, name: str) -> None:
    with _change(store) as connection:
        records = _all(connection)
        children = [(group.name, group.parent) for group in records.groups]
        children += [(key.id, key.parent) for key in records.keys]
        for child, parent in children:
            if parent == Parent(level, name):
                raise StoreError(
                    f"{level} {shown(name)}: {shown(child)} belongs to it; delete that first"
                )
        done = connection.execute("DELETE FROM groups WHERE level = ? AND name = ?", (level, name))
        if done.rowcount == 0:
            raise _no(level, name)


def _block_group(store: SqliteStore, level: str, name: str, blocked: bool) -> None:
    with _change(store) as connection:
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


def _add_key(store: SqliteStore, record: KeyRecord) -> None:
    with _change(store) as connection:
        _check_parent(store, connection, record.parent, "a key")
        connection.execute(
            "INSERT INTO keys (id, body) VALUES (?, ?)", (record.id, msgspec.json.encode(record))
        )


def _change_key(store: SqliteStore, id: str, change: Callable[[KeyRecord], KeyRecord]) -> None:
    with _change(store) as connection:
        row = connection.execute("SELECT body FROM keys WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise _no("key", id)
        record = change(_decoded(KeyRecord, row[0]))
        connection.execute(
            "UPDATE keys SET body = ? WHERE id = ?", (msgspec.json.encode(record), id)
        )


def _delete_key(store: SqliteStore, id: str) -> None:
    with _change(store) as connection:
        if connection.execute("DELETE FROM keys WHERE id = ?", (id,)).rowcount == 0:
            raise _no("key", id)


def _add_spent(store: SqliteStore, more: Sequence[SpentMore], at_ms: int) -> None:
    with _change(store, of_records=False) as connection:
        connection.executemany(
            "INSERT INTO spent (meter_id, bucket, amount, leaves_ms) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (meter_id, bucket) DO UPDATE SET amount = amount + excluded.amount",
            more,
        )
        connection.execute("DELETE FROM spent WHERE leaves_ms <= ?", (at_ms,))


def _spent(store: SqliteStore, at_ms: int) -> list[Spent]:
    rows = _opened(store).execute(
        "SELECT meter_id, bucket, amount FROM spent WHERE leaves_ms IS NULL OR leaves_ms > ?",
        (at_ms,),
    )
    return [Spent(*row) for row in rows]


def _check_parent(
    store: SqliteStore, connection: sqlite3.Connection, parent: Parent | None, child: str
) -> None:
    if parent is None:
        return
    found = connection.execute(
        "SELECT 1 FROM groups WHERE level = ? AND name = ?", (parent.level, parent.name)
    ).fetchone()
    if found is None and not store._parent_elsewhere(parent):
        raise StoreError(
            f"{child}: there is no {parent.level} {shown(parent.name)} it could belong to; "
            "make that first"
        )


def _ending(secret: Secret, at_ms: int) -> Secret:
    ends_ms = at_ms if secret.expires_ms is None else min(at_ms, secret.expires_ms)
    return msgspec.structs.replace(secret, expires_ms=ends_ms)


def _decoded(kind: type[T], body: bytes) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except ConfigError as error:
        raise msgspec.DecodeError(str(error)) from error


def _no(level: str, name: str) -> StoreError:
    return StoreError(f"there is no {level} {shown(name)} in the store")
