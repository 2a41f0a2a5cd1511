"""What both stores keep, and how it is found again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.gateway.batch_writer import Batches
from headrace.gateway.request_log.errors import RequestLogError
from headrace.gateway.request_log.filters import RecordFilter
from headrace.gateway.request_log.record import LoggedBody, LogRecord
from headrace.gateway.request_log.sqlite_store import SqliteReader, SqliteRecords
from headrace.gateway.request_log.written_log import Reader
from headrace.gateway.settings.secret import Secret
from tests.gateway.request_log.parts import NOVEMBER_S, many, record
from tests.gateway.request_log.postgresql_server import PostgresqlServer, running


class Store(NamedTuple):
    records: Batches[LogRecord]
    reader: Reader


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with running() as one:
        yield one


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        path = tmp_path / "log.sqlite3"
        yield Store(records := SqliteRecords(path), SqliteReader(path))
        records.close()
        return
    from headrace.gateway.request_log.postgresql_store import (
        Database,
        PostgresqlReader,
        PostgresqlRecords,
    )

    server: PostgresqlServer = request.getfixturevalue("server")
    database = Database(Secret(server.new_database(), "a test"))
    yield Store(kept := PostgresqlRecords(database), PostgresqlReader(database))
    kept.close()


def ids(store: Store, **wanted: Any) -> list[int]:
    page = store.reader.newest(RecordFilter(**{"limit": 100, **wanted}))
    return [int(one.id.removeprefix("req-")) for one in page.records]


def test_a_record_comes_back_as_it_was(store: Store) -> None:
    given = record(
        3,
        target=None, provider=None, outcome="client_gone", status=0, stream=True,
        first_token_ms=None, finish=None, input_tokens=None, output_tokens=None, cost_nusd=None,
        organisation="o", team="t", user="u", key="k", session="s", trace_id="4bf9", variant="b",
        cache="hit", error="it broke", without_bodies="unreadable",
        request=LoggedBody(text='{"a": "\\u0000 ü 🙂"}', bytes=99, cut=True, redacted=2),
        reply=None,
    )  # fmt: skip
    store.records.append([given])
    assert store.reader.find("req-3") == given
    assert store.reader.find(given.line) == given
    assert store.reader.find("req-4") is None
    (page,) = store.reader.newest(RecordFilter(bodies=True)).records
    assert page == given
    (without,) = store.reader.newest(RecordFilter()).records
    assert without.request is None and without.error == "it broke"


def test_texts_that_no_database_takes(store: Store) -> None:
    store.records.append([record(1, error="a\0b\ud800c", request=LoggedBody(text="\0", bytes=1))])
    found = store.reader.find("req-1")
    assert found is not None and found.error == "a\ufffdb?c"
    assert found.request is not None and found.request.text == "\ufffd"


def test_what_is_written_twice_is_there_once(store: Store) -> None:
    store.records.append([record(1), record(2)])
    store.records.append([record(1), record(3)])
    assert ids(store) == [3, 2, 1]


def test_one_id_of_two_requests_is_two_records(store: Store) -> None:
    store.records.append([record(1, id="req-9"), record(2, id="req-9", key="other")])
    assert ids(store) == [9, 9]
    found = store.reader.find("req-9")
    assert found is not None and found.key == "other", "the newest"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"model": "m0"}, [9, 6, 3, 0]),
        ({"key": "k1", "outcome": "failed"}, [9]),
        ({"since_s": NOVEMBER_S + 8}, [9, 8]),
        ({"since_s": NOVEMBER_S + 2, "until_s": NOVEMBER_S + 4}, [3, 2]),
        ({"least_ms": 7.5}, [9, 8]),
        ({"least_cost_nusd": 7000}, [9, 8, 7]),
        ({"text": "banana"}, [6, 1]),
        ({"text": "cherry % _ !"}, [7, 2]),
        ({"text": "% % _"}, []),
        ({"text": 'say "hi"\n'}, [8, 3]),
        ({"text": "Zürich"}, [9, 4]),
        ({"text": "Apple 5"}, [5]),
        ({"text": "nothing"}, []),
        ({"model": "' OR 1=1 --"}, []),
        ({"limit": 2}, [9, 8]),
    ],
)  # fmt: skip
def test_search(store: Store, wanted: dict[str, Any], found: list[int]) -> None:
    store.records.append(many(10))
    assert ids(store, **wanted) == found


def test_pages_while_new_ones_come(store: Store) -> None:
    store.records.append(many(10))
    first = store.reader.newest(RecordFilter(limit=4))
    assert [one.id for one in first.records] == ["req-9", "req-8", "req-7", "req-6"]
    store.records.append([record(20)])
    rest = store.reader.newest(RecordFilter(limit=4, after=first.next))
    last = store.reader.newest(RecordFilter(limit=4, after=rest.next))
    assert [one.id for one in (*rest.records, *last.records)] == [
        f"req-{n}" for n in range(5, -1, -1)
    ]
    assert last.next is None


def test_old_ones_are_deleted_a_few_at_a_time(store: Store) -> None:
    store.records.append(many(10))
    before_ms = (NOVEMBER_S + 5) * 1000
    assert store.records.delete_before(before_ms, 3) == 3
    assert store.records.delete_before(before_ms, 3) == 2
    assert store.records.delete_before(before_ms, 3) == 0
    assert ids(store) == [9, 8, 7, 6, 5]


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"not a database, and longer than a header of SQLite would be" * 4)
    before = path.read_bytes()
    with pytest.raises(RequestLogError, match="damaged or not an SQLite file"):
        SqliteRecords(path)
    assert path.read_bytes() == before
    with pytest.raises(RequestLogError, match="there is no folder"):
        SqliteRecords(tmp_path / "none" / "x")


def test_the_file_is_for_its_owners_eyes(tmp_path: Path) -> None:
    SqliteRecords(tmp_path / "x").close()
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
