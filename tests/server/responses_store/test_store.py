"""The store of responses as the server's loop uses it: its file, its owners, and its faults."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from headrace.config import ServerConfig
from headrace.errors import ConfigError
from headrace.server.responses_store.rows import Turn
from headrace.server.responses_store.store import ResponsesStore

ROOM = 2**20
BODY = b'{"output":[{"out":1}]}'


def store_of(path: Path | None = None) -> ResponsesStore:
    config = ServerConfig(responses_store=None if path is None else str(path))
    return ResponsesStore(config, lambda: 1e9)


def test_a_file_has_its_responses_after_a_restart_and_no_key(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"

    async def write() -> bytes:
        store = store_of(path)
        owner = store.owner(b"digest-of-a-key")
        assert await store.add(Turn("resp_1", owner, None, b'[{"in":1}]', BODY))
        store.close()
        return owner

    async def read(owner: bytes) -> None:
        store = store_of(path)
        assert store.owner(b"digest-of-a-key") == owner
        assert store.owner(b"another") != owner
        assert await store.body("resp_1", owner) == BODY
        assert await store.body("resp_1", store.owner(b"another")) is None
        store.close()

    owner = asyncio.run(write())
    asyncio.run(read(owner))
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"digest-of-a-key" not in path.read_bytes()


def test_a_process_killed_between_two_turns_loses_neither(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"

    async def write() -> None:
        store = store_of(path)
        await store.add(Turn("resp_1", b"", None, b"[]", BODY))
        held = await store.hold("resp_1", b"", ROOM)
        assert held is not None
        await store.add(Turn("resp_2", b"", held.number, b"[]", BODY))
        await store.delete("resp_1", b"")
        # What a kill leaves behind: the files as they are now, the log not yet in the database.
        for name in ("responses.db", "responses.db-wal"):
            (tmp_path / f"killed-{name}").write_bytes((tmp_path / name).read_bytes())
        store.close()

    async def read() -> None:
        store = store_of(tmp_path / "killed-responses.db")
        held = await store.hold("resp_2", b"", ROOM)
        assert held is not None
        assert len(held.items) == 2
        store.close()

    asyncio.run(write())
    asyncio.run(read())


def test_what_a_damaged_file_had_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    store_of(path).close()
    whole = bytearray(path.read_bytes())
    whole[:16] = b"not a database!!"
    path.write_bytes(whole)
    with pytest.raises(ConfigError, match=r"responses\.db: it is damaged"):
        store_of(path)
    assert path.read_bytes() == whole


def test_a_file_of_another_program_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(ConfigError, match="database of another program"):
        store_of(other)
    with pytest.raises(ConfigError, match="there is no folder"):
        store_of(tmp_path / "no" / "responses.db")


def test_a_database_that_fails_is_logged_and_answers_as_if_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use() -> None:
        path = tmp_path / "responses.db"
        store = store_of(path)
        await store.add(Turn("resp_1", b"", None, b"[]", BODY))
        other = sqlite3.connect(path)
        other.execute("DROP TABLE responses")
        assert not await store.add(Turn("resp_2", b"", None, b"[]", BODY))
        assert await store.body("resp_1", b"") is None
        assert await store.hold("resp_1", b"", ROOM) is None
        other.close()
        store.close()

    asyncio.run(use())
    assert "the database failed: no such table: responses" in caplog.text


def test_a_hold_that_nobody_waits_for_is_released() -> None:
    async def use() -> int:
        store = store_of()
        await store.add(Turn("resp_1", b"", None, b"[]", BODY))
        waiting = asyncio.ensure_future(store.hold("resp_1", b"", ROOM))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0.05)
        await store.delete("resp_1", b"")
        (rows,) = store._rows._connection.execute("SELECT count(*) FROM responses").fetchone()
        store.close()
        return int(rows)

    assert asyncio.run(use()) == 0


def test_the_bounds_are_the_settings() -> None:
    """By number, by bytes and by age: what is beyond is not found."""

    async def found(config: ServerConfig, later_s: float = 0.0) -> list[bool]:
        now = [1_000_000.0]
        store = ResponsesStore(config, lambda: now[0])
        owner = store.owner(b"key")
        for name in ("r1", "r2", "r3"):
            await store.add(Turn(name, owner, None, b"[]", BODY))
        now[0] += later_s
        bodies = [await store.body(name, owner) for name in ("r1", "r2", "r3")]
        store.close()
        return [body is not None for body in bodies]

    assert asyncio.run(found(ServerConfig())) == [True, True, True]
    assert asyncio.run(found(ServerConfig(max_stored_responses=2))) == [False, True, True]
    assert asyncio.run(found(ServerConfig(max_stored_response_bytes=1))) == [False] * 3
    days = ServerConfig(stored_response_days=2)
    assert asyncio.run(found(days, 86_400.0)) == [True, True, True]
    assert asyncio.run(found(days, 3 * 86_400.0)) == [False] * 3
