"""What rows of stored responses keep, what they displace, and what a conversation is read as."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator

import msgspec
import pytest

from headrace.server.responses_store.database import open_database
from headrace.server.responses_store.rows import (
    MAX_TURNS,
    Bounds,
    ResponseRows,
    TooLongError,
    Turn,
)

ROOM = 2**40


class Clock:
    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = open_database(None)
    yield connection
    connection.close()


def rows_of(
    connection: sqlite3.Connection, responses: int = 100, bytes: int = ROOM
) -> ResponseRows:
    return ResponseRows(connection, Bounds(responses, bytes, 1000), Clock())


def turn(id: str, previous: int | None = None, *, owner: bytes = b"a", text: str = "") -> Turn:
    items = msgspec.json.encode([{"in": id}])
    body = msgspec.json.encode({"id": id, "output": [{"out": id}], "text": text})
    return Turn(id, owner, previous, items, body)


def said(rows: ResponseRows, id: str, owner: bytes = b"a") -> list[dict[str, str]] | None:
    held = rows.hold(id, owner, ROOM)
    if held is None:
        return None
    rows.release(held.number)
    return [msgspec.json.decode(item) for item in held.items]


def continued(rows: ResponseRows, id: str, previous: str) -> None:
    held = rows.hold(previous, b"a", ROOM)
    assert held is not None
    assert rows.add(turn(id, held.number))
    rows.release(held.number)


def count(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT count(*) FROM responses").fetchone()
    return int(number)


def test_a_conversation_is_the_items_of_all_its_turns_in_order(
    connection: sqlite3.Connection,
) -> None:
    rows = rows_of(connection)
    rows.add(turn("1"))
    continued(rows, "2", "1")
    continued(rows, "3", "2")
    continued(rows, "other", "1")
    assert said(rows, "3") == [
        {"in": "1"}, {"out": "1"}, {"in": "2"}, {"out": "2"}, {"in": "3"}, {"out": "3"},
    ]  # fmt: skip
    assert said(rows, "other") == [{"in": "1"}, {"out": "1"}, {"in": "other"}, {"out": "other"}]
    given = rows.input_items("2", b"a", ROOM)
    assert given is not None
    assert [msgspec.json.decode(item) for item in given] == [{"in": "1"}, {"out": "1"}, {"in": "2"}]


def test_only_its_owner_finds_a_response(connection: sqlite3.Connection) -> None:
    rows = rows_of(connection)
    rows.add(turn("1"))
    for id, owner in (("1", b"b"), ("1", b""), ("2", b"a"), ("1' OR 1 --", b"a"), ("\ud800", b"a")):
        assert rows.body(id, owner) is None
        assert rows.hold(id, owner, ROOM) is None
        assert rows.input_items(id, owner, ROOM) is None
        assert not rows.delete(id, owner)
    assert rows.body("1", b"a") == turn("1").body


def test_a_deleted_response_is_kept_for_those_that_continue_it_and_no_longer(
    connection: sqlite3.Connection,
) -> None:
    rows = rows_of(connection)
    rows.add(turn("1"))
    continued(rows, "2", "1")
    assert rows.delete("1", b"a")
    assert rows.body("1", b"a") is None
    assert not rows.delete("1", b"a")
    assert said(rows, "2") == [{"in": "1"}, {"out": "1"}, {"in": "2"}, {"out": "2"}]
    assert count(connection) == 2
    assert rows.delete("2", b"a")
    assert count(connection) == 0


def test_a_response_deleted_while_it_is_continued_is_kept_until_that_is_over(
    connection: sqlite3.Connection,
) -> None:
    rows = rows_of(connection)
    rows.add(turn("1"))
    first, second = rows.hold("1", b"a", ROOM), rows.hold("1", b"a", ROOM)
    assert first is not None and second is not None
    rows.delete("1", b"a")
    rows.release(first.number)
    assert count(connection) == 1
    rows.add(turn("2", second.number))
    rows.release(second.number)
    assert said(rows, "2") == [{"in": "1"}, {"out": "1"}, {"in": "2"}, {"out": "2"}]


def test_the_oldest_are_displaced_by_number_and_by_bytes(connection: sqlite3.Connection) -> None:
    rows = rows_of(connection, responses=3)
    for number in range(5):
        assert rows.add(turn(str(number)))
    assert [rows.body(str(number), b"a") is not None for number in range(5)] == [
        False, False, True, True, True,
    ]  # fmt: skip
    rows = rows_of(connection, bytes=1000)
    assert rows.add(turn("large", text="x" * 900))
    assert rows.body("4", b"a") is None
    assert not rows.add(turn("too large", text="x" * 1000))
    assert rows.body("large", b"a") is not None
    assert not rows_of(connection, responses=0).add(turn("none"))


def test_old_responses_are_not_found_and_go_with_the_next(connection: sqlite3.Connection) -> None:
    clock = Clock()
    rows = ResponseRows(connection, Bounds(100, ROOM, 1000), clock)
    rows.add(turn("1"))
    clock.now_s += 1000
    assert rows.body("1", b"a") is not None
    clock.now_s += 1
    assert rows.body("1", b"a") is None
    rows.add(turn("2"))
    assert count(connection) == 1


def test_too_long_conversations_are_refused(connection: sqlite3.Connection) -> None:
    rows = rows_of(connection, responses=2 * MAX_TURNS)
    rows.add(turn("0"))
    with pytest.raises(TooLongError):
        rows.hold("0", b"a", 10)
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO responses (id, owner, previous, created_s, is_live, bytes, items, body) "
        "VALUES (?, ?, ?, 1000000, 1, 2, '[]', '{}')",
        [(f"t{number}", b"a", number) for number in range(1, MAX_TURNS + 1)],
    )
    connection.execute("COMMIT")
    assert rows.hold(f"t{MAX_TURNS - 1}", b"a", ROOM) is not None
    with pytest.raises(TooLongError):
        rows.hold(f"t{MAX_TURNS}", b"a", ROOM)


def test_any_order_of_uses_keeps_the_bounds_and_every_conversation_whole(
    connection: sqlite3.Connection,
) -> None:
    for seed in range(20):
        drawn = random.Random(seed)
        connection.execute("DELETE FROM responses")
        rows = rows_of(connection, responses=8, bytes=1200)
        lines: dict[str, list[dict[str, str]]] = {}
        held: list[int] = []
        for step in range(120):
            id, previous = f"{seed}-{step}", None
            before: list[dict[str, str]] = []
            known = [name for name in lines if rows.body(name, b"a") is not None]
            if known and drawn.random() < 0.2:
                rows.delete(drawn.choice(known), b"a")
                continue
            if known and drawn.random() < 0.7:
                name = drawn.choice(known)
                conversation = rows.hold(name, b"a", ROOM)
                assert conversation is not None
                assert [msgspec.json.decode(item) for item in conversation.items] == lines[name]
                previous, before = conversation.number, lines[name]
                held.append(previous)
                if drawn.random() < 0.3:
                    continue
            is_stored = rows.add(turn(id, previous))
            assert is_stored == (rows.body(id, b"a") is not None)
            assert is_stored or held
            if is_stored:
                lines[id] = [*before, {"in": id}, {"out": id}]
            if drawn.random() < 0.5:
                while held:
                    rows.release(held.pop())
            live, size = connection.execute(
                "SELECT total(is_live), total(bytes) FROM responses"
            ).fetchone()
            assert live <= 8
            assert size <= 1200 or held
        for number in held:
            rows.release(number)
        for name in lines:
            rows.delete(name, b"a")
        assert count(connection) == 0


def test_a_turn_that_exceeds_the_bounds_with_those_before_it_is_not_stored(
    connection: sqlite3.Connection,
) -> None:
    one = turn("1", text="x" * 100)
    size = len(one.items) + len(one.body)
    rows = rows_of(connection, bytes=2 * size - 1)
    assert rows.add(one)
    held = rows.hold("1", b"a", ROOM)
    assert held is not None
    assert not rows.add(turn("2", held.number, text="x" * 100))
    rows.release(held.number)
    assert said(rows, "2") is None
