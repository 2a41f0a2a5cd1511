"""The ledger's file: what is read is what was written, and no wrong file is touched."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.ledger.errors import LedgerError
from headrace.gateway.ledger.file import LedgerFile
from headrace.gateway.ledger.newest import EntryFilter, newest
from headrace.gateway.ledger.row import entry_of, row_of
from headrace.gateway.ledger.schema import APPLICATION_ID, COLUMN_NAMES, SCHEMA_VERSION, reading
from headrace.gateway.serving.entry import AttemptEntry, Entry
from headrace.protocol.neutral.usage import TokenUsage
from tests.gateway.ledger.entries import entry, refused, written

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COUNT = st.integers(0, 2**63 - 1)
TIME_MS = st.floats(0, 1e9)


def entries() -> st.SearchStrategy[Entry]:
    """Any entry there may be; target and provider are never "" in one."""
    attempt = st.builds(
        AttemptEntry,
        target=TEXT,
        began_ms=TIME_MS,
        lasted_ms=TIME_MS,
        failure=st.none() | TEXT,
        status=st.none() | st.integers(100, 599),
        message=TEXT,
    )
    # What else was used is told by a cost that is unknown.
    others = ("cost_nusd", "is_incomplete")
    lines = {name: COUNT for name in TokenUsage.__struct_fields__ if name not in others}
    return st.builds(
        Entry,
        id=TEXT,
        at_s=st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000),
        dialect=TEXT,
        operation=st.sampled_from(["chat", "embeddings"]),
        model=TEXT,
        target=st.none() | TEXT.filter(bool),
        provider=st.none() | TEXT.filter(bool),
        outcome=st.sampled_from(["answered", "cut", "client_gone", "failed", "refused"]),
        status=st.integers(0, 599),
        stream=st.booleans(),
        attempts=st.lists(attempt, max_size=3).map(tuple),
        usage=st.none() | st.builds(TokenUsage, **lines, cost_nusd=st.none() | COUNT),
        usage_from=st.sampled_from(["provider", "estimated", "none"]),
        cost_nusd=st.none() | COUNT,
        finish=st.none() | TEXT,
        first_token_ms=st.none() | TIME_MS,
        total_ms=TIME_MS,
        overhead_us=COUNT,
        organisation=TEXT,
        team=TEXT,
        user=TEXT,
        key=TEXT,
        tags=st.lists(TEXT, max_size=3).map(tuple),
        cache=TEXT,
        error=TEXT,
    )


@pytest.mark.long
@settings(deadline=None)
@given(entries())
def test_an_entry_comes_back_as_it_was(one: Entry) -> None:
    row = row_of(one)
    assert len(row) == len(COLUMN_NAMES)
    assert entry_of(row) == one


def test_every_field_of_an_entry_and_of_its_usage_is_a_column() -> None:
    named = {*Entry.__struct_fields__, *TokenUsage.__struct_fields__}
    named -= {"usage", "at_s", "is_incomplete"}
    assert named | {"at_ms", "told_cost_nusd"} == set(COLUMN_NAMES)


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "ledger", entry())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_restart_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path / "ledger", entry(1))
    written(path, refused(2))
    with reading(path) as connection:
        assert newest(connection, EntryFilter()) == [refused(2), entry(1)]


def test_reading_while_writing_sees_whole_batches(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    file = LedgerFile(path)
    file.append([entry(1), entry(2)])
    with reading(path) as connection:
        assert len(newest(connection, EntryFilter())) == 2
        file.append([entry(3)])
        assert len(newest(connection, EntryFilter())) == 2, "a report is of one moment"
    with reading(path) as connection:
        assert len(newest(connection, EntryFilter())) == 3
    file.close()


def test_two_processes_may_write_to_one_file(tmp_path: Path) -> None:
    one, two = LedgerFile(tmp_path / "ledger"), LedgerFile(tmp_path / "ledger")
    for number in range(10):
        (one, two)[number % 2].append([entry(number)])
    one.close()
    two.close()
    with reading(tmp_path / "ledger") as connection:
        assert len(newest(connection, EntryFilter())) == 10


def test_what_was_written_outlives_a_crash(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "ledger")
    file.append([entry(1)])
    left = tmp_path / "left"  # as the files lie there when nobody has closed them
    left.mkdir()
    for name in ("ledger", "ledger-wal"):
        shutil.copy(tmp_path / name, left / name)
    file.close()
    LedgerFile(left / "ledger").close()
    with reading(left / "ledger") as connection:
        assert newest(connection, EntryFilter()) == [entry(1)]


def test_a_batch_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "ledger")
    with pytest.raises(OverflowError):
        file.append([entry(1), entry(2, overhead_us=2**70)])
    file.append([entry(3)])
    file.close()
    with reading(tmp_path / "ledger") as connection:
        assert [one.id for one in newest(connection, EntryFilter())] == ["req-3"]


def garbage(path: Path) -> str:
    path.write_bytes(b"these are notes of mine\n" * 100)
    return "damaged or not an SQLite file"


def truncated(path: Path) -> str:
    written(path, *(entry(number) for number in range(500)))
    path.write_bytes(path.read_bytes()[:20_480])
    return "damaged"


def overwritten_page(path: Path) -> str:
    written(path, *(entry(number) for number in range(500)))
    raw = bytearray(path.read_bytes())
    raw[8192:12_288] = b"\xff" * 4096
    path.write_bytes(raw)
    return "damaged"


def of_another(path: Path) -> str:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (name TEXT)")
    connection.commit()
    connection.close()
    return "of another program"


def newer(path: Path) -> str:
    written(path, entry())
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    return f"version {SCHEMA_VERSION + 1} and this headrace knows up to {SCHEMA_VERSION}"


def other_columns(path: Path) -> str:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE requests (number INTEGER PRIMARY KEY)")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.commit()
    connection.close()
    return "columns"


@pytest.mark.parametrize(
    "make", [garbage, truncated, overwritten_page, of_another, newer, other_columns]
)
def test_a_wrong_file_is_a_clear_error_and_stays_as_it_is(make: object, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert callable(make)
    said = make(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=said) as caught:
        LedgerFile(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("make", [garbage, of_another, newer, other_columns])
def test_a_wrong_file_is_not_read_either(make: object, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert callable(make)
    with pytest.raises(LedgerError, match=make(path)), reading(path):
        raise AssertionError("nothing can be read")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no such file"), reading(tmp_path / "no"):
        raise AssertionError
    (tmp_path / "empty").touch()
    with pytest.raises(LedgerError, match="nothing was ever written"), reading(tmp_path / "empty"):
        raise AssertionError
    with pytest.raises(LedgerError, match="create it first"):
        LedgerFile(tmp_path / "folder" / "ledger")
    with pytest.raises(LedgerError):
        LedgerFile(tmp_path)


def test_only_so_many_are_deleted_at_once_the_oldest_first(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "ledger")
    file.append([entry(number) for number in (5, 3, 1, 2, 4)])
    before_ms = round(entry(5).at_s * 1000)
    assert file.delete_before(before_ms, 3) == 3
    with reading(tmp_path / "ledger") as connection:
        assert [one.id for one in newest(connection, EntryFilter())] == ["req-5", "req-4"]
    assert file.delete_before(before_ms, 3) == 1
    assert file.delete_before(before_ms, 3) == 0
    file.close()


def test_the_newest_of_what_is_wanted(tmp_path: Path) -> None:
    path = written(
        tmp_path / "ledger",
        entry(1, key="k"),
        entry(4, model="other", key="k"),
        refused(2),
        entry(3, key="k"),
    )
    with reading(path) as connection:

        def ids(**wanted: object) -> list[str]:
            return [one.id for one in newest(connection, EntryFilter(**wanted))]  # type: ignore[arg-type]

        assert ids() == ["req-4", "req-3", "req-2", "req-1"]
        assert ids(limit=1) == ["req-4"]
        assert ids(model="chat", key="k") == ["req-3", "req-1"]
        assert ids(outcome="refused") == ["req-2"]
        assert ids(model="' OR 1 --") == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_of_an_older_version_is_brought_up_to_date_and_loses_nothing(
    tmp_path: Path, version: int
) -> None:
    since = {
        1: ("purpose", "parent", "variant", "assigned", "guardrails", "prompt"),
        2: ("ignored", "skipped"),
        3: ("dropped",),
    }
    path = written(tmp_path / "ledger", entry(1))
    connection = sqlite3.connect(path)
    for name in (name for older in range(version, 4) for name in since[older]):
        connection.execute(f"ALTER TABLE requests DROP COLUMN {name}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="older headrace"), reading(path):
        pass
    second = entry(2, purpose="judge", parent="req-1", ignored=("seed",), skipped=("a/m: why",))
    written(path, second)
    with reading(path) as found:
        assert newest(found, EntryFilter()) == [second, entry(1)]


def test_opening_it_twice_in_one_process_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops all locks a process has on it: another process would
    take itself for the last, and delete the write-ahead log under the one that writes."""
    path = tmp_path / "ledger"
    writing = LedgerFile(path)
    writing.append([entry(1)])
    again = LedgerFile(path)
    script = f"import sqlite3; c = sqlite3.connect({str(path)!r}); "
    script += "c.execute('SELECT 1 FROM requests'); c.close()"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert path.with_name("ledger-wal").exists()
    writing.append([entry(2)])
    with reading(path) as found:
        assert len(newest(found, EntryFilter())) == 2
    again.close()
    writing.close()
