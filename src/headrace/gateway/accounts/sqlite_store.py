"""Accounts in one SQLite file, written by one thread with a bounded queue.

Groups and keys are rows of JSON: they are read as a whole and looked up in memory. Several
processes share the file (write-ahead log); each sees the others' changes by a generation number,
which is looked at only when SQLite says that somebody wrote (PRAGMA data_version).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.errors import shown
from headrace.gateway.accounts.counters import Mark, Spent
from headrace.gateway.accounts.errors import StoreBusyError, StoreError
from headrace.gateway.accounts.key import NewKey, RandomBytes, Secret, make_key, secret_of
from headrace.gateway.accounts.records import Group, GroupLevel, KeyRecord, Parent, Records
from headrace.gateway.accounts.sqlite_rows import ParentElsewhere, SqliteRows
from headrace.gateway.accounts.store import SpentMore
from headrace.gateway.accounts.terms import NO_TERMS, Level, Terms

DEFAULT_MOST_QUEUED = 1000
_ID_BYTES = 6
_NS_PER_MS = 1_000_000

T = TypeVar("T")


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
        self._most_queued = most_queued
        self._queued = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accounts")
        self._rows = SqliteRows(path, parent_elsewhere)  # of the thread alone

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
            await store._run(SqliteRows.open)
        except BaseException:
            store._thread.shutdown(wait=False)
            raise
        return store

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    async def read(self) -> Records:
        """See AccountStore."""
        return await self._run(SqliteRows.read)

    async def changed(self) -> bool:
        """See AccountStore."""
        return await self._run(SqliteRows.changed)

    async def put_group(self, group: Group) -> None:
        """See AccountStore."""
        await self._run(lambda rows: rows.put_group(group))

    async def delete_group(self, level: GroupLevel, name: str) -> None:
        """See AccountStore."""
        await self._run(lambda rows: rows.delete_group(level, name))

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
        await self._run(lambda rows: rows.add_key(record))
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

    async def edit_key(self, id: str, edited: Callable[[KeyRecord], KeyRecord]) -> None:
        """See AccountStore."""
        await self._change_key(id, edited)

    async def block(self, level: Level, name: str, *, blocked: bool = True) -> None:
        """See AccountStore."""
        if level == "key":
            await self._change_key(name, lambda key: msgspec.structs.replace(key, blocked=blocked))
        else:
            await self._run(lambda rows: rows.block_group(level, name, blocked=blocked))

    async def expire_key(self, id: str, *, at_ms: int | None) -> None:
        """See AccountStore."""
        await self._change_key(id, lambda key: msgspec.structs.replace(key, expires_ms=at_ms))

    async def delete_key(self, id: str) -> None:
        """See AccountStore."""
        await self._run(lambda rows: rows.delete_key(id))

    async def add_spent(self, more: Sequence[SpentMore]) -> None:
        """See AccountStore."""
        now_ms = self._now_ms()
        await self._run(lambda rows: rows.add_spent(more, now_ms))

    async def spent(self, *, at_ms: int, of: Collection[str] | None = None) -> list[Spent]:
        """See AccountStore."""
        return await self._run(lambda rows: rows.spent(at_ms, of))

    async def add_marks(self, marks: Sequence[Mark]) -> None:
        """See AccountStore."""
        now_ms = self._now_ms()
        await self._run(lambda rows: rows.add_marks(marks, now_ms))

    async def marks(self, ids: Sequence[str], *, at_ms: int) -> frozenset[str]:
        """See AccountStore."""
        return await self._run(lambda rows: rows.marks(ids, at_ms))

    async def close(self) -> None:
        """See AccountStore."""
        await self._run(SqliteRows.close)
        self._thread.shutdown(wait=False)

    def _now_ms(self) -> int:
        return self._now_ns() // _NS_PER_MS

    async def _change_key(self, id: str, change: Callable[[KeyRecord], KeyRecord]) -> None:
        await self._run(lambda rows: rows.change_key(id, change))

    async def _run(self, work: Callable[[SqliteRows], T]) -> T:
        """Do work in the thread; work that has begun there completes even if its caller is
        cancelled."""
        if self._queued >= self._most_queued:
            raise StoreBusyError(
                f"{self._path}: {self._queued} changes are waiting to be written; try again"
            )
        self._queued += 1
        try:
            future = self._thread.submit(self._do, work)
        except RuntimeError as error:
            self._queued -= 1
            raise StoreError(f"{self._path}: the store is closed") from error
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _from_thread(loop, self._done))
        return await asyncio.wrap_future(future)

    def _done(self) -> None:
        self._queued -= 1

    def _do(self, work: Callable[[SqliteRows], T]) -> T:
        try:
            return work(self._rows)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self._path}: {error}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self._path}: a row is damaged; restore the file from a copy"
            ) from error


def _from_thread(loop: asyncio.AbstractEventLoop, done: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(done)
    except RuntimeError:
        # The loop is closed, and with it whoever would ask again.
        return


def _ending(secret: Secret, at_ms: int) -> Secret:
    ends_ms = at_ms if secret.expires_ms is None else min(at_ms, secret.expires_ms)
    return msgspec.structs.replace(secret, expires_ms=ends_ms)
