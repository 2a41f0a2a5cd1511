"""The database: what is kept, what it refuses, and what a kill leaves."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from headrace.bench.providers.lock import held
from headrace.bench.providers.read_store import read_store
from headrace.bench.providers.schema import VERSION
from headrace.bench.providers.store import Store
from headrace.errors import ConfigError, HeadraceError
from tests.bench.providers.made import Fares, failed_row, file, fill, provider, row

FARES = {"a": Fares(100, 10), "b": Fares(50, 5)}


def filled(path: Path, rounds: int = 3) -> Path:
    of = file(provider("a"), provider("b"), single_requests=2, batch_size=2)
    fill(path, of, FARES, rounds)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = read_store(filled(tmp_path / "p.db"))
    assert [one.name for one in found.series] == ["a", "b"]
    assert (found.rounds, found.missed) == (3, 0)
    assert len(found.visits) == 6
    visit = found.visits[0]
    assert [one.phase for one in visit.requests] == ["single", "single", "batch", "batch"]
    expected = row("single", 0, 0.0, FARES[found.series[visit.series].name], 1.0)
    assert visit.requests[0] == expected


def test_requests_are_rows_that_sqlite_alone_can_read(tmp_path: Path) -> None:
    with sqlite3.connect(filled(tmp_path / "p.db")) as on:
        told = on.execute(
            "SELECT p.name, q.phase, count(*), avg(q.ttft_ns) / 1e6 FROM requests q "
            "JOIN visits v ON v.id = q.visit JOIN providers p ON p.id = v.provider "
            "GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
        assert on.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert told == [
        ("a", "batch", 6, pytest.approx(120)),
        ("a", "single", 6, pytest.approx(100)),
        ("b", "batch", 6, pytest.approx(60)),
        ("b", "single", 6, pytest.approx(50)),
    ]


def test_a_visit_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    path = filled(tmp_path / "p.db")
    store = Store(path)
    # The second request has the first one's key: the transaction fails half-way.
    twice = [row("single", 0, 0, FARES["a"], 1), row("single", 0, 0, FARES["a"], 1)]
    with pytest.raises(HeadraceError, match="cannot be written: UNIQUE"):
        store.add_visit(
            1,
            1,
            place=0,
            began_at=0,
            ended_at=1,
            outcome="complete",
            message="",
            client_bound=None,
            requests=twice,
        )
    store.close()
    assert len(read_store(path).visits) == 6


def test_it_is_read_while_it_is_written_and_from_a_folder_that_cannot_be(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    path = filled(folder / "p.db")
    store = Store(path)
    with store._transaction():
        assert len(read_store(path).visits) == 6
    store.close()
    folder.chmod(0o500)
    try:
        assert len(read_store(path).visits) == 6
    finally:
        folder.chmod(0o700)


def test_visits_before_a_time_are_left_out(tmp_path: Path) -> None:
    path = filled(tmp_path / "p.db")
    all_of_it = read_store(path)
    late = read_store(path, since=all_of_it.visits[4].began_at)
    assert late.visits == all_of_it.visits[4:]
    assert late.rounds == 1


def test_other_files_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("x" * 5000, encoding="utf-8")
    for attempt in (Store, read_store):
        with pytest.raises(ConfigError, match="not a database"):
            attempt(text)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as on:
        on.execute("CREATE TABLE t (a)")
    for attempt in (Store, read_store):
        with pytest.raises(ConfigError, match="is not a database of `headrace bench providers`"):
            attempt(other)
    with pytest.raises(ConfigError, match="the file does not exist;"):
        read_store(tmp_path / "absent.db")
    newer = filled(tmp_path / "newer.db")
    with sqlite3.connect(newer) as on:
        on.execute(f"PRAGMA user_version = {VERSION + 1}")
    for attempt in (Store, read_store):
        with pytest.raises(ConfigError, match=f"version {VERSION + 1} of the tables"):
            attempt(newer)


def test_a_round_without_an_end_is_open_and_says_who_is_left(tmp_path: Path) -> None:
    store = Store(filled(tmp_path / "p.db"))
    assert store.open_round() is None
    before = store.last_session()
    assert before is not None
    session, workload, ids = store.begin_session(
        before.workload, {n: (f, {}) for n, f in before.providers.items()}, before.schedule, {}, 0.0
    )
    assert ids == {"a": 1, "b": 2}
    round_id, number = store.begin_round(session, workload, 3, 0.0, 0.0)
    for provider_id, outcome in ((1, "complete"), (2, "interrupted")):
        store.add_visit(
            round_id,
            provider_id,
            place=0,
            began_at=0.0,
            ended_at=1.0,
            outcome=outcome,
            message="",
            client_bound=None,
            requests=[failed_row("single", 0)],
        )
    opened = store.open_round()
    assert opened is not None
    assert (opened.number, opened.slot, opened.measured) == (number, 3, frozenset({1}))
    store.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    with held(path):
        with pytest.raises(ConfigError, match="another process measures into it"), held(path):
            pass
        assert (tmp_path / "p.db.lock").exists()
    with held(path):
        pass
    assert list(tmp_path.iterdir()) == []
