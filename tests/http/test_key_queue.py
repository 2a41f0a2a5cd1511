"""Items of several keys that wait: first come, first served within a key, keys in turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http.key_queue import KeyQueue


def served(queue: KeyQueue[int]) -> list[int]:
    """All items in the order of the keys' turns."""
    found = []
    while queue:
        found.append(queue.take(next(queue.keys())))
    return found


def test_keys_take_turns() -> None:
    queue: KeyQueue[int] = KeyQueue()
    for item, key in enumerate("aaaabbc"):
        queue.add(key, item)
    assert served(queue) == [0, 4, 6, 1, 5, 2, 3]


def test_a_key_that_comes_anew_is_behind_those_that_wait() -> None:
    queue: KeyQueue[int] = KeyQueue()
    for item, key in enumerate("aab"):
        queue.add(key, item)
    assert queue.take("a") == 0
    queue.add("c", 3)
    assert served(queue) == [2, 1, 3]


def test_what_is_taken_out_costs_its_key_no_turn() -> None:
    queue: KeyQueue[int] = KeyQueue()
    for item, key in enumerate("aabc"):
        queue.add(key, item)
    queue.discard("a", 0)
    queue.discard("b", 2)
    queue.discard("b", 2)
    queue.discard("nobody", 1)
    assert list(queue.keys()) == ["a", "c"]
    assert served(queue) == [1, 3]
    with pytest.raises(KeyError):
        queue.take("a")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60))
def test_nobody_waits_for_more_than_one_item_of_each_other_key(
    moves: list[tuple[str, bool]],
) -> None:
    queue: KeyQueue[int] = KeyQueue()
    waiting: dict[str, list[int]] = {key: [] for key in "abcd"}
    since: dict[str, list[str]] = {}
    for number, (key, comes) in enumerate(moves):
        if comes:
            if not waiting[key]:
                since[key] = []
            waiting[key].append(number)
            queue.add(key, number)
        elif queue:
            turn = next(queue.keys())
            assert queue.take(turn) == waiting[turn].pop(0)
            for other, turns in since.items():
                if other != turn and waiting[other]:
                    turns.append(turn)
                    assert len(turns) == len(set(turns)), "each other key once"
            since[turn] = []
    assert len(served(queue)) == sum(map(len, waiting.values()))
