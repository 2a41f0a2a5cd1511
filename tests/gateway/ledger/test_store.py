"""The way to the disk: nothing waits for it, nothing is lost that is not counted."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.ledger.file import LedgerFile
from headrace.gateway.ledger.newest import EntryFilter, newest
from headrace.gateway.ledger.schema import reading
from headrace.gateway.ledger.store import LedgerStore
from headrace.gateway.serving.entry import Entry
from tests.gateway.ledger.entries import DAY_S, NOVEMBER_S, entry, written

_WAIT_S = 20.0


class FakeFile:
    """Keeps what it is given, unless `refuse` raises. tried: is set at each batch."""

    def __init__(self, refuse: Callable[[Sequence[Entry]], None] = lambda entries: None) -> None:
        self.refuse = refuse
        self.kept: list[Entry] = []
        self.batches: list[int] = []
        self.old = 0
        self.deletions: list[tuple[int, int]] = []
        self.tried = threading.Event()
        self.deleted = threading.Event()
        self.closed = False

    def append(self, entries: Sequence[Entry]) -> None:
        try:
            self.refuse(entries)
            self.kept += entries
            self.batches.append(len(entries))
        finally:
            self.tried.set()

    def delete_before(self, at_ms: int, most: int) -> int:
        self.deletions.append((at_ms, most))
        deleted = min(most, self.old)
        self.old -= deleted
        if not self.old:
            self.deleted.set()
        return deleted

    def close(self) -> None:
        self.closed = True


def store(file: FakeFile, **more: Any) -> LedgerStore:
    given: dict[str, Any] = {
        "name": "ledger",
        "retention_days": None,
        "wall_s": lambda: float(NOVEMBER_S),
        "linger_s": 0.001,
        "retry_s": 0.001,
    }
    return LedgerStore(file, **{**given, **more})


def full(_entries: Sequence[Entry]) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_what_was_taken_is_written_in_order_and_in_batches() -> None:
    file = FakeFile()
    ledger = store(file, linger_s=0.05)
    taken = [entry(number) for number in range(1200)]
    for one in taken:
        ledger.take(one)
    ledger.close()
    assert file.kept == taken and file.closed
    assert max(file.batches) <= 500 and len(file.batches) < 100
    assert ledger.standing == (1200, 0, 0, "")


def test_a_full_disk_is_tried_again_and_loses_nothing_while_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = FakeFile(full)
    with caplog.at_level(logging.INFO):
        ledger = store(file)
        ledger.take(entry(1))
        assert file.tried.wait(_WAIT_S)
        ledger.take(entry(2))
        file.refuse = lambda entries: None
        ledger.close()
    assert [one.id for one in file.kept] == ["req-1", "req-2"]
    assert ledger.standing.lost == 0
    assert caplog.text.count("cannot be written") == 1, "once, not at each try"
    assert "disk is full" in caplog.text


def test_what_there_is_no_room_for_is_counted_and_nothing_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = FakeFile(full)
    ledger = store(file, most_waiting=10)
    for number in range(25):
        ledger.take(entry(number))
    standing = ledger.standing
    assert standing.written == 0 and standing.waiting == 10 and standing.lost == 15
    ledger.close()
    assert ledger.standing[:3] == (0, 0, 25) and "full" in ledger.standing.error
    assert not file.kept and file.closed
    assert "no more fit in memory" in caplog.text and "25 lost" in caplog.text
    ledger.take(entry())
    assert ledger.standing.lost == 26, "also after its end nothing goes unseen"


def test_a_disk_that_hangs_holds_up_nobody() -> None:
    go_on = threading.Event()

    def hang(_entries: Sequence[Entry]) -> None:
        go_on.wait(_WAIT_S)

    file = FakeFile(hang)
    ledger = store(file, most_waiting=10)
    for number in range(25):
        ledger.take(entry(number))
    ledger.close(timeout_s=0.01)
    assert ledger.standing.lost + ledger.standing.waiting == 25
    go_on.set()
    ledger.close()
    assert ledger.standing.written + ledger.standing.lost == 25


class LimitedFile(LedgerFile):
    """On a disk that is full while `is_full` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_full = True
        self.tried = threading.Event()

    def append(self, entries: Sequence[Entry]) -> None:
        pages = 1 if self.is_full else 2**30
        self._connection.execute(f"PRAGMA max_page_count = {pages}")
        try:
            super().append(entries)
        except sqlite3.OperationalError as error:
            assert "disk is full" in str(error)
            self.tried.set()
            raise


def test_when_there_is_room_again_a_real_file_has_all(tmp_path: Path) -> None:
    file = LimitedFile(tmp_path / "ledger")
    ledger = LedgerStore(
        file, name="ledger", retention_days=None, wall_s=lambda: 0.0, linger_s=0.001, retry_s=0.001
    )
    for number in range(100):
        ledger.take(entry(number))
    assert file.tried.wait(_WAIT_S)
    file.is_full = False
    ledger.close()
    assert ledger.standing == (100, 0, 0, "")
    with reading(tmp_path / "ledger") as connection:
        assert len(newest(connection, EntryFilter(limit=1000))) == 100


def test_a_damaged_file_is_written_no_more() -> None:
    tries = 0

    def damaged(_entries: Sequence[Entry]) -> None:
        nonlocal tries
        tries += 1
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    file = FakeFile(damaged)
    ledger = store(file)
    ledger.take(entry(1))
    assert file.tried.wait(_WAIT_S)
    ledger.take(entry(2))
    ledger.close()
    assert tries == 1
    assert ledger.standing == (0, 0, 2, "database disk image is malformed")


def test_an_entry_that_no_column_takes_is_lost_alone(tmp_path: Path) -> None:
    ledger = LedgerStore.open(tmp_path / "ledger", retention_days=None, wall_s=lambda: 0.0)
    for one in (entry(1), entry(2, overhead_us=2**70), entry(3, model="\ud800"), entry(4)):
        ledger.take(one)
    ledger.close()
    assert ledger.standing[:3] == (2, 0, 2)
    with reading(tmp_path / "ledger") as connection:
        assert [one.id for one in newest(connection, EntryFilter())] == ["req-4", "req-1"]


def test_old_requests_go_a_few_at_a_time() -> None:
    file = FakeFile()
    file.old = 1700
    ledger = store(file, retention_days=30)
    ledger.take(entry())
    assert file.deleted.wait(_WAIT_S)
    ledger.close()
    assert {most for _, most in file.deletions} == {500} and len(file.deletions) == 4
    assert file.deletions[0][0] == (NOVEMBER_S - 30 * DAY_S) * 1000


def test_nothing_is_deleted_where_all_is_kept() -> None:
    file = FakeFile()
    ledger = store(file)
    ledger.take(entry())
    ledger.close()
    assert not file.deletions


def test_retention_on_a_real_file(tmp_path: Path) -> None:
    path = written(tmp_path / "ledger", entry(1, at_s=NOVEMBER_S - 31.0 * DAY_S))
    ledger = LedgerStore.open(path, retention_days=30, wall_s=lambda: float(NOVEMBER_S))
    ledger.take(entry(2))
    for _ in range(2000):
        with reading(path) as connection:
            ids = [one.id for one in newest(connection, EntryFilter())]
        if ids == ["req-2"]:
            break
        threading.Event().wait(0.005)
    ledger.close()
    assert ids == ["req-2"]
