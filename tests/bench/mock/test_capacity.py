"""Places and the queue before them."""

from __future__ import annotations

from headrace.bench.mock.capacity import Capacity


class One:
    def __init__(self) -> None:
        self.begun_ns: int | None = None

    def start(self, begun_ns: int) -> None:
        self.begun_ns = begun_ns


def test_first_come_first_served() -> None:
    capacity = Capacity(2, None, lambda: 77)
    ones = [One() for _ in range(5)]
    assert all(capacity.enter(one, 5) for one in ones)
    assert [one.begun_ns for one in ones] == [5, 5, None, None, None]
    assert (capacity.running, capacity.waiting) == (2, 3)
    capacity.leave(ones[2])  # gives up waiting
    capacity.leave(ones[1])
    assert [one.begun_ns for one in ones] == [5, 5, None, 77, None]
    capacity.leave(ones[1])  # twice is once
    assert (capacity.running, capacity.waiting) == (2, 1)
    for one in ones:
        capacity.leave(one)
    assert (capacity.running, capacity.waiting) == (0, 0)


def test_a_full_queue_takes_nobody() -> None:
    capacity = Capacity(1, 1, lambda: 0)
    first, second, third = One(), One(), One()
    assert [capacity.enter(one, 0) for one in (first, second, third)] == [True, True, False]
    capacity.leave(first)
    assert second.begun_ns == 0
    assert capacity.enter(third, 0)


def test_no_limit() -> None:
    capacity = Capacity(None, None, lambda: 0)
    ones = [One() for _ in range(100)]
    assert all(capacity.enter(one, 1) for one in ones)
    assert capacity.running == 100
