"""When rounds are due, and who comes first."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.bench.providers.schedule import Schedule, order

TEN_MINUTES = Schedule(1000.0, 600.0)


def test_the_first_round_is_due_when_the_schedule_begins() -> None:
    assert TEN_MINUTES.next_slot(1000.0) == 0
    assert TEN_MINUTES.due_at(0) == 1000.0


@pytest.mark.parametrize(
    ("now", "after", "slot"),
    [
        (1000.5, 0, 1),  # the round took half a second
        (1599.9, 0, 1),
        (1600.0, 0, 1),  # due in this very moment
        (1700.0, 0, 2),  # it took too long: the slot that has passed is not made up for
        (90_000.0, 3, 149),  # the process was away for a day: one round, no burst
        (1000.0, 7, 8),  # a clock that was set back
        (0.0, None, 0),
    ],
)
def test_missed_rounds_stay_missed(now: float, after: int | None, slot: int) -> None:
    assert TEN_MINUTES.next_slot(now, after) == slot
    assert TEN_MINUTES.due_at(slot) >= now


def test_no_round_is_due_after_the_duration() -> None:
    hour = TEN_MINUTES._replace(duration_s=3600.0)
    assert hour.next_slot(1000.0, 4) == 5
    assert hour.next_slot(1000.0, 5) is None
    assert hour.next_slot(1e9) is None


def test_a_slot_runs_until_the_next_one() -> None:
    assert TEN_MINUTES.is_running(2, 2200.0)
    assert TEN_MINUTES.is_running(2, 2799.0)
    assert not TEN_MINUTES.is_running(2, 2800.0)
    assert not TEN_MINUTES.is_running(2, 2199.0)


def test_everybody_is_equally_often_at_every_place() -> None:
    names = ["a", "b", "c", "d"]
    orders = [order(names, number, seed=5) for number in range(40)]
    for place in range(4):
        assert Counter(one[place] for one in orders) == dict.fromkeys(names, 10)
    # Who follows whom changes from cycle to cycle.
    assert len({tuple(one) for one in orders}) > 4
    assert orders == [order(list(reversed(names)), number, seed=5) for number in range(40)]
