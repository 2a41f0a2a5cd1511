"""The queue's order under every way in and out, and its cost with very many in it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.scheduling.waiting import WaitingQueue


def request(arrival: int, priority: int = 0) -> Request:
    return Request(str(arrival), [1], 1, SamplingParams(), 2, priority=priority, arrival=arrival)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "back", "remove"]), st.integers(0, 99)), max_size=60)
)
def test_the_order_is_that_of_lists_by_priority(moves: list[tuple[str, int]]) -> None:
    queue = WaitingQueue()
    expected: dict[int, list[Request]] = {-1: [], 0: [], 7: []}
    out: list[Request] = []
    for arrival, (move, number) in enumerate(moves):
        waiting = [each for level in sorted(expected) for each in expected[level]]
        if move == "add":
            new = request(arrival, (-1, 0, 7)[number % 3])
            queue.add(new)
            expected[new.priority].append(new)
        elif move == "back" and out:
            again = out.pop(number % len(out))
            queue.put_back(again)
            expected[again.priority].insert(0, again)
        elif move == "remove" and waiting:
            gone = waiting[number % len(waiting)]
            queue.remove(gone)
            expected[gone.priority].remove(gone)
            out.append(gone)
        waiting = [each for level in sorted(expected) for each in expected[level]]
        assert list(queue) == waiting
        assert len(queue) == len(waiting)
        assert queue.num_put_back <= len(waiting)
        if waiting:
            assert queue.head is waiting[0]


def test_how_many_of_them_had_run_is_counted() -> None:
    queue = WaitingQueue()
    one, other = request(0), request(1)
    queue.add(one)
    queue.put_back(other)
    assert queue.num_put_back == 1
    queue.remove(one)
    assert queue.num_put_back == 1
    queue.remove(other)
    assert queue.num_put_back == 0
    with pytest.raises(KeyError):
        queue.remove(other)


def test_ten_thousand_in_the_queue_cost_microseconds_each() -> None:
    queue = WaitingQueue()
    requests = [request(arrival, arrival * 7919 % 5) for arrival in range(10_000)]
    begun_s = time.perf_counter()
    for each in requests:
        queue.add(each)
    for each in requests[::2]:
        queue.remove(each)
    for each in requests[1::2]:
        queue.remove(each)
    # A scan of the queue for each would take 10,000 times 100 µs and more.
    assert time.perf_counter() - begun_s < 2.0
    assert not len(queue)
