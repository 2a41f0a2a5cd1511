"""Which row the engine gets next: shares of keys, no slot left free, nobody forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.server.admission.engine_turns import AHEAD_DIVISOR, EngineTurn, EngineTurns


class Engine:
    """An engine of so many slots that begins rows in the order in which it gets them; `fits`: rows
    that its cache holds."""

    def __init__(self, slots: int, fits: int | None = None) -> None:
        self.turns = EngineTurns(slots)
        self.slots = min(slots, slots if fits is None else fits)
        self.waiting: list[EngineTurn] = []
        self.running: list[EngineTurn] = []
        self.order: list[EngineTurn] = []
        """As they began."""
        self._asked: dict[str, deque[EngineTurn]] = {}

    def ask(self, key: str, count: int = 1, priority: int = 0) -> list[EngineTurn]:
        asked = [self.turns.ask(key, priority) for _ in range(count)]
        self._asked.setdefault(key, deque()).extend(asked)
        self.step()
        return asked

    def step(self) -> None:
        """Take what was given, begin what fits, until nothing changes."""
        while True:
            given = [
                turn
                for turns in self._asked.values()
                for turn in turns
                if turn.state == "given" and turn not in self.waiting
            ]
            self.waiting += given
            begun = self.waiting[: self.slots - len(self.running)]
            if not given and not begun:
                return
            del self.waiting[: len(begun)]
            for turn in begun:
                turn.begun()
            self.running += begun
            self.order += begun

    def end(self, turn: EngineTurn) -> None:
        self.running.remove(turn)
        turn.leave()
        self.step()

    def held(self) -> Counter[str]:
        return Counter(turn.key for turn in (*self.waiting, *self.running))


def test_one_key_alone_has_all_of_the_engine() -> None:
    engine = Engine(64)
    engine.ask("a", 200)
    assert len(engine.running) == 64
    assert len(engine.waiting) == 64 // AHEAD_DIVISOR, "no slot is free for a step"


def test_a_stranger_comes_after_a_few_rows_and_not_after_all_of_another_key() -> None:
    engine = Engine(64)
    engine.ask("crowd", 16 * 4 * 4)
    (stranger,) = engine.ask("stranger")
    ended = 0
    while stranger not in engine.order:
        engine.end(engine.running[0])
        ended += 1
    assert ended == 64 // AHEAD_DIVISOR + 1, "those that the engine had before"


def test_where_the_cache_holds_few_rows_a_stranger_waits_for_about_as_many() -> None:
    engine = Engine(64, fits=10)
    engine.ask("crowd", 256)
    assert len(engine.running) == 10
    before = len(engine.waiting)
    assert before <= 10 + 64 // AHEAD_DIVISOR
    (stranger,) = engine.ask("stranger")
    for _ in range(before + 1):
        engine.end(engine.running[0])
    assert stranger in engine.order


def test_shares_even_out_as_rows_end() -> None:
    engine = Engine(64)
    engine.ask("a", 300)
    engine.ask("b", 300)
    for _ in range(64):
        engine.end(next(turn for turn in engine.running if turn.key == "a"))
    assert engine.held() == {"a": 36, "b": 36}
    engine.ask("c", 300)
    for number in range(96):
        engine.end(engine.running[number % len(engine.running)])
    assert engine.held() == {"a": 24, "b": 24, "c": 24}


def test_rows_that_wait_in_the_engine_for_their_prefix_keep_no_stranger_out() -> None:
    """Nothing begins: choices of one prompt wait until its prefix is computed."""
    turns = EngineTurns(64)
    first, *others = [turns.ask("crowd") for _ in range(64)]
    first.begun()
    assert any(turn.state == "waiting" for turn in others)
    stranger, second = turns.ask("stranger"), turns.ask("stranger")
    assert (stranger.state, second.state) == ("given", "waiting")
    stranger.begun()
    assert second.state == "given"


def test_the_lower_priority_comes_first_whoever_asks() -> None:
    engine = Engine(8)
    engine.ask("a", 20, priority=1)
    late = engine.ask("a", 1, priority=1)
    urgent = engine.ask("a", 3)
    assert all(turn in engine.waiting for turn in urgent), "it may take the place of one that runs"
    assert late[0].state == "waiting"
    other = engine.ask("b", 1, priority=1)
    for _ in range(5):
        engine.end(engine.running[0])
    assert set(urgent) <= set(engine.order)
    assert other[0] in engine.order and late[0] not in engine.order


def test_urgent_rows_have_shares_among_themselves() -> None:
    engine = Engine(8)
    engine.ask("a", 20, priority=1)
    mine = engine.ask("a", 40)
    (stranger,) = engine.ask("b")
    assert sum(turn.state != "waiting" for turn in mine) <= 8 + 1 + 8
    assert stranger in engine.waiting


def test_turns_that_are_given_up_go_to_the_next() -> None:
    engine = Engine(1)
    (runs,) = engine.ask("a")
    second, third, fourth = engine.ask("a", 3)
    assert (second.state, third.state) == ("given", "waiting")
    third.leave()
    third.leave()
    assert [fourth.state, second.state] == ["waiting", "given"]
    engine.waiting.remove(second)
    second.leave()
    engine.step()
    engine.end(runs)
    assert engine.running == [fourth] and engine.turns.held("a") == 1
    engine.end(fourth)
    assert engine.turns.held("a") == 0


async def test_waiting_ends_with_the_turn() -> None:
    turns = EngineTurns(1)
    turns.ask("a").begun()
    (second, third) = (turns.ask("a"), turns.ask("a"))
    await asyncio.wait_for(second.wait(), 5)
    waits = asyncio.ensure_future(third.wait())
    await asyncio.sleep(0)
    assert not waits.done()
    second.begun()
    second.leave()
    await asyncio.wait_for(waits, 5)
    given_up = asyncio.ensure_future(turns.ask("a").wait())
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up


MOVES = st.lists(
    st.tuples(st.sampled_from(["ask", "end", "leave"]), st.integers(0, 3), st.integers(0, 30)),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(MOVES, st.integers(1, 12), st.integers(1, 12), st.integers(0, 1))
def test_whatever_comes_and_ends(
    moves: list[tuple[str, int, int]], slots: int, fits: int, priorities: int
) -> None:
    engine = Engine(slots, fits)
    ahead = max(1, slots // AHEAD_DIVISOR)
    asked: dict[tuple[str, int], list[EngineTurn]] = {}
    for kind, who, amount in moves:
        if kind == "ask":
            key, priority = "abcd"[who], (amount % 2) * priorities
            asked.setdefault((key, priority), []).extend(engine.ask(key, 1 + amount % 5, priority))
        elif kind == "end" and engine.running:
            engine.end(engine.running[amount % len(engine.running)])
        elif kind == "leave":
            waiting = [
                turn for turns in asked.values() for turn in turns if turn.state == "waiting"
            ]
            if waiting:
                waiting[amount % len(waiting)].leave()
                engine.step()
        states = [turn.state for turns in asked.values() for turn in turns]
        # Never more than the engine can use soon, beside one row of each key and priority.
        most = (2 * ahead + slots) * (1 + priorities) + 4
        assert states.count("given") + states.count("begun") <= most
        # A row waits here only while the engine has enough of those that come before it.
        waits = {priority for (_, priority), turns in asked.items()
                 if any(turn.state == "waiting" for turn in turns)}  # fmt: skip
        assert not waits or not engine.turns.has_room(min(waits))
        for (key, priority), turns in asked.items():
            if waits and priority == min(waits) and any(turn.state == "waiting" for turn in turns):
                assert engine.held()[key], "whoever waits has a row in the engine"
        # Nobody passes a row of the same key and priority.
        for turns in asked.values():
            came = [turn for turn in turns if turn in engine.order]
            assert sorted(came, key=engine.order.index) == came
    # All are served in the end.
    for _ in range(1000):
        if not engine.running:
            break
        engine.end(engine.running[0])
    assert all(turn.state == "over" for turns in asked.values() for turn in turns)
