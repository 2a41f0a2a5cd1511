"""Stores of accounts in SQLite that tests open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from headrace.gateway.accounts import Accounts, Records, SqliteStore, StoreError
from headrace.gateway.accounts.records import NO_RECORDS
from tests.gateway.accounts.parts import Clock, accounts_of, random_bytes


class Files:
    """Stores of one test over one file, closed at its end."""

    def __init__(self, path: Path, ends: AsyncExitStack) -> None:
        self.path = path
        self.clock = Clock()
        self._ends = ends
        self._seed = 0

    async def open(self, **more: object) -> SqliteStore:
        self._seed += 1
        store = await SqliteStore.open(
            self.path,
            now_ns=self.clock,
            random_bytes=random_bytes(self._seed),
            **more,  # type: ignore[arg-type]
        )
        self._ends.push_async_callback(_close, store)
        return store

    async def accounts(self, store: SqliteStore, configured: Records = NO_RECORDS) -> Accounts:
        accounts = accounts_of(configured, self.clock, store=store, seed=self._seed)
        await accounts.start()
        return accounts


async def _close(store: SqliteStore) -> None:
    try:
        await store.close()
    except StoreError:
        return  # closed by the test


@asynccontextmanager
async def files_in(folder: Path) -> AsyncIterator[Files]:
    """Of one file in `folder`."""
    async with AsyncExitStack() as ends:
        yield Files(folder / "accounts.db", ends)
