"""Lines on their way to any store: what waits is bounded in number and size, what is lost counted.

What a store of SQLite does with it is in tests/gateway/ledger/test_store.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace.gateway.batch_writer import BatchWriter, Bounds, Verdict, Waits

_WAIT_S = 20.0


class Store:
    """Keeps what it is given, unless `refuse` raises."""

    def __init__(self, refuse: Callable[[Sequence[str]], None] = lambda lines: None) -> None:
        self.refuse = refuse
        self.kept: list[str] = []
        self.batches: list[int] = []
        self.tried = threading.Event()

    def append(self, lines: Sequence[str], /) -> None:
        try:
            self.refuse(lines)
            self.kept += lines
            self.batches.append(sum(map(len, lines)))
        finally:
            self.tried.set()

    def delete_before(self, at_ms: int, most: int) -> int:
        raise ConnectionError("it is down")

    def close(self) -> None:
        pass


def judge(error: Exception) -> Verdict | None:
    if isinstance(error, ConnectionError):
        return "later"
    return "bad_line" if isinstance(error, ValueError) else None


def writer(store: Store, **more: Any) -> BatchWriter[str]:
    given: dict[str, Any] = {
        "kind": "the log",
        "name": "store",
        "retention_days": None,
        "wall_s": lambda: 0.0,
        "judge": judge,
        "id_of": lambda line: line[:5],
        "size_of": len,
        "bounds": Bounds(1000, 100),
        "waits": Waits(0.001, 0.001, 0.002),
    }
    return BatchWriter(store, **{**given, **more})


def down(_lines: Sequence[str]) -> None:
    raise ConnectionError("it is down")


def test_what_waits_is_bounded_in_bytes() -> None:
    store = Store(down)
    log = writer(store)
    for line in ("a" * 40, "b" * 40, "c" * 40, "d" * 20, "e"):
        log.take(line)
    assert log.standing.waiting == 3 and log.standing.lost == 2
    assert log.waiting_bytes == 100
    assert store.tried.wait(_WAIT_S)
    store.refuse = lambda lines: None
    log.close()
    assert store.kept == ["a" * 40, "b" * 40, "d" * 20]
    assert log.waiting_bytes == 0 and log.standing == (3, 0, 2, "")


def test_room_is_there_again_when_lines_have_left() -> None:
    store = Store()
    log = writer(store)
    for number in range(50):
        while log.waiting_bytes > 40:
            threading.Event().wait(0.001)
        log.take(f"{number:02}" * 30)
    log.close()
    assert len(store.kept) == 50 and log.standing.lost == 0


def test_a_batch_is_bounded_in_bytes_and_has_one_line_at_least() -> None:
    store = Store()
    large = 5 * 2**20
    log = writer(store, bounds=Bounds(1000, 100 * large), waits=Waits(0.05))
    for _ in range(4):
        log.take("x" * large)
    log.take("y" * 2 * large)
    log.close()
    assert store.batches == [large, large, large, large, 2 * large]


def test_of_a_batch_the_bad_lines_are_lost_alone() -> None:
    def picky(lines: Sequence[str]) -> None:
        if "bad" in lines:
            raise ValueError("no column takes it")

    store = Store(picky)
    log = writer(store, waits=Waits(0.05))
    for line in ("one", "bad", "two", "bad", "three"):
        log.take(line)
    log.close()
    assert store.kept == ["one", "two", "three"] and log.standing[:3] == (3, 0, 2)


def test_a_store_that_cannot_delete_goes_on_being_written_to() -> None:
    store = Store()
    log = writer(store, retention_days=1)
    log.take("one")
    assert store.tried.wait(_WAIT_S)
    log.take("two")
    log.close()
    assert store.kept == ["one", "two"] and log.standing.error == ""
