"""Stores: what is put is there for a while, within a bound, and failing is missing."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.gateway.cache.memory_store import MemoryStore
from headrace.gateway.cache.sqlite_store import APPLICATION_ID, SqliteStore
from headrace.gateway.cache.store import CacheStore

SMALL = 2**16


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CacheStore]:
    made: CacheStore
    made = MemoryStore(SMALL) if request.param == "memory" else SqliteStore(tmp_path / "c", SMALL)
    yield made
    made.close()


async def test_what_is_put_is_there_until_it_expires(store: CacheStore) -> None:
    assert await store.get(key(1), 0.0) is None
    store.put(key(1), b"one", now_s=10.0, expires_s=20.0)
    store.put(key(2), b"two", now_s=10.0, expires_s=15.0)
    store.put(key(1), b"uno", now_s=11.0, expires_s=21.0)
    assert await store.get(key(1), 20.9) == b"uno"
    assert await store.get(key(2), 14.9) == b"two"
    assert await store.get(key(2), 15.0) is None
    assert await store.get(key(1), 21.0) is None


async def test_what_has_no_room_does_not_come_in(store: CacheStore) -> None:
    store.put(key(1), b"one", now_s=0.0, expires_s=9.0)
    store.put(key(2), b"x" * (SMALL + 1), now_s=0.0, expires_s=9.0)
    assert await store.get(key(2), 1.0) is None
    assert await store.get(key(1), 1.0) == b"one"


async def test_the_first_make_room_for_the_last(store: CacheStore) -> None:
    for number in range(100):
        store.put(key(number), b"x" * 2000, now_s=float(number), expires_s=1e6)
    assert await store.get(key(99), 100.0) is not None
    assert await store.get(key(0), 100.0) is None
    held = [one for one in range(100) if await store.get(key(one), 100.0) is not None]
    assert 5 <= len(held) <= SMALL // 2000


async def test_after_closing_nothing_is_there(store: CacheStore) -> None:
    store.put(key(1), b"one", now_s=0.0, expires_s=9.0)
    store.close()
    store.close()
    assert await store.get(key(1), 1.0) is None


async def test_memory_counts_what_it_has_and_keeps_what_is_asked_for() -> None:
    store = MemoryStore(SMALL)
    store.put(key(0), b"x" * 2000, now_s=0.0, expires_s=1e6)
    for number in range(1, 1000):
        store.put(key(number), b"x" * (number % 3000), now_s=0.0, expires_s=1e6)
        assert store.size_bytes <= SMALL
        assert await store.get(key(0), 1.0) is not None, "it was used last"
    for number in range(1000):
        await store.get(key(number), 1e7)
    assert (len(store), store.size_bytes) == (0, 0)


async def test_a_file_outlives_its_process_and_is_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    before = SqliteStore(path, SMALL)
    before.put(key(1), b"one", now_s=0.0, expires_s=9.0)
    await before.written()
    beside = SqliteStore(path, SMALL)
    assert await beside.get(key(1), 1.0) == b"one", "two processes may share it"
    before.close()
    beside.close()
    after = SqliteStore(path, SMALL)
    assert await after.get(key(1), 1.0) == b"one"
    after.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _garbage(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def _others(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def _newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE answers (x)")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [_garbage, _others, _newer, _folder])
async def test_a_file_that_cannot_be_used_is_a_miss_and_left_as_it_is(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    store = SqliteStore(path, SMALL)
    store.put(key(1), b"one", now_s=0.0, expires_s=9.0)
    assert await store.get(key(1), 1.0) is None
    assert await store.get(key(1), 1.0) is None
    store.close()
    assert len([one for one in caplog.records if "cache.db" in one.getMessage()]) == 1
    assert before is None or path.read_bytes() == before


async def test_pages_that_are_damaged_later_are_a_miss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore(path, 2**20)
    for number in range(100):
        store.put(key(number), b"x" * 3000, now_s=0.0, expires_s=9.0)
    await store.written()
    store.close()
    await _ended(store)
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    path.write_bytes(bytes(raw))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    again = SqliteStore(path, 2**20)
    for number in (1, 50, 99):
        assert await again.get(key(number), 1.0) is None
        again.put(key(number), b"y", now_s=0.0, expires_s=9.0)
    await again.written()
    again.close()
    assert "delete the file" in caplog.text


async def _ended(store: SqliteStore) -> None:
    """The thread has let go of the file."""
    store._file._thread.shutdown(wait=True)


async def test_a_table_that_is_gone_is_a_miss(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    store = SqliteStore(path, SMALL)
    store.put(key(1), b"one", now_s=0.0, expires_s=9.0)
    assert await store.get(key(1), 1.0) == b"one"
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE answers")
    connection.close()
    assert await store.get(key(1), 1.0) is None
    store.close()


async def test_a_file_that_takes_too_long_is_a_miss(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "cache.db", SMALL, most_wait_s=0.01)
    store.put(key(1), b"one", now_s=0.0, expires_s=9.0)
    await store.written()
    hold = threading.Event()
    store._file._thread.submit(hold.wait)
    assert await store.get(key(1), 1.0) is None
    hold.set()
    await store.written()
    store.close()


async def test_a_queue_that_is_full_keeps_no_more(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "cache.db", 2**30, most_wait_s=60.0)
    hold = threading.Event()
    store._file._thread.submit(hold.wait)
    for number in range(20):
        store.put(key(number), b"x" * (4 * 2**20), now_s=0.0, expires_s=9.0)
    hold.set()
    assert await store.get(key(7), 1.0) is not None, "32 MiB wait"
    assert await store.get(key(8), 1.0) is None
    store.close()
