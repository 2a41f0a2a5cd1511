"""The file of accounts: who may read it, and what is damaged or not ours stays as it is."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.gateway.accounts import SqliteStore, StoreError, sqlite_file
from headrace.gateway.accounts.counters import Mark
from headrace.gateway.accounts.sqlite_file import SCHEMA_VERSION
from tests.gateway.accounts.parts import Clock, random_bytes
from tests.gateway.accounts.sqlite_files import Files, files_in


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    async with files_in(tmp_path) as files:
        yield files


async def test_many_open_a_new_file_at_once(files: Files) -> None:
    stores = await asyncio.gather(*(files.open() for _ in range(8)))
    await asyncio.gather(*(store.create_key() for store in stores))
    assert len((await stores[0].read()).keys) == 8


async def test_only_the_owner_may_read_the_file(files: Files) -> None:
    await files.open()
    assert stat.S_IMODE(files.path.stat().st_mode) == 0o600


async def test_a_newer_schema_is_told(files: Files) -> None:
    await (await files.open()).close()
    with sqlite3.connect(files.path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = files.path.read_bytes()
    with pytest.raises(StoreError, match=f"version {SCHEMA_VERSION + 1}.* newer headrace"):
        await files.open()
    assert files.path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database " * 500, b"SQLite format 3\0" + b"\xff" * 9000]
)
async def test_a_file_that_is_none_is_left_alone(files: Files, content: bytes) -> None:
    files.path.write_bytes(content)
    with pytest.raises(StoreError, match="nothing was written"):
        await files.open()
    assert files.path.read_bytes() == content


async def test_a_damaged_file_is_left_alone(files: Files) -> None:
    store = await files.open()
    for _ in range(60):
        await store.create_key(label="x" * 400)
    await store.close()
    content = bytearray(files.path.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 2048] = b"\x5a" * 2048
    files.path.write_bytes(content)
    with pytest.raises(StoreError, match="nothing was written"):
        await files.open()
    assert files.path.read_bytes() == content


@pytest.mark.parametrize("table", ["marks", "keys", "groups", "spent", "generation"])
async def test_of_a_large_file_all_but_marks_is_looked_at(
    files: Files, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    store = await files.open()
    await store.create_key()
    await store.add_marks([Mark("o", "a", files.clock.ms + 1)])
    await store.close()
    with sqlite3.connect(files.path) as connection:
        text = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = connection.execute(text, (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(files.path.read_bytes())
    content[(page - 1) * size : page * size] = b"\x5a" * size
    files.path.write_bytes(content)
    with pytest.raises(StoreError, match="nothing was written"):
        await files.open()
    monkeypatch.setattr(sqlite_file, "WHOLE_CHECK_BYTES", len(content) - 1)
    if table == "marks":
        assert len((await (await files.open()).read()).keys) == 1
    else:
        with pytest.raises(StoreError, match="nothing was written"):
            await files.open()


async def test_a_database_of_another_program_is_left_alone(files: Files) -> None:
    with sqlite3.connect(files.path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = files.path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        await files.open()
    assert files.path.read_bytes() == before


async def test_a_row_that_is_none_of_ours(files: Files) -> None:
    store = await files.open()
    await store.create_key()
    with sqlite3.connect(files.path) as connection:
        connection.execute("UPDATE keys SET body = ?", (b'{"id": 5}',))
    connection.close()
    with pytest.raises(StoreError, match="a row is damaged"):
        await store.read()


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"the folder .* does not exist"):
        await SqliteStore.open(
            tmp_path / "none" / "a.db", now_ns=Clock(), random_bytes=random_bytes()
        )
