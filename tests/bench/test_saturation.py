"""Who keeps up and who does not, on queues that are worked out by hand or drawn."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from headrace.bench.saturation import Saturation, saturation

S = 1_000_000_000

Ended = tuple[float, float, bool]


def queue(
    rate: float,
    seconds: float,
    servers: int,
    service_s: Callable[[random.Random], float],
    *,
    failing: float = 0.0,
    seed: int | None = None,
) -> list[Ended]:
    """(came, ended, completed) of each; evenly where there is no seed, else by Poisson."""
    draw = random.Random(seed or 1)
    free = [0.0] * servers
    at, found = 0.0, []
    while (at := at + (1 / rate if seed is None else draw.expovariate(rate))) <= seconds:
        fails = draw.random() < failing
        end = at if fails else max(at, heapq.heappop(free)) + service_s(draw)
        if not fails:
            heapq.heappush(free, end)
        found.append((at, end, not fails))
    return found


def judged(of: list[Ended], until_s: float) -> Saturation | None:
    """As it stood at that time."""
    return saturation(
        [round(came * S) for came, _, _ in of if came <= until_s],
        sorted(round(end * S) for _, end, good in of if good and end <= until_s),
        [round(came * S) for came, end, _ in of if end <= until_s],
        round(until_s * S),
    )


def ever(of: list[Ended], seconds: int) -> bool:
    """Whether it was found saturated at any second."""
    found = (judged(of, at) for at in range(1, seconds + 1))
    return any(one is not None and one.saturated for one in found)


def test_a_server_that_takes_half_of_what_comes() -> None:
    of = queue(10, 60, 5, lambda _: 1.0)
    found = judged(of, 60)
    assert found is not None and found.saturated
    assert found.came_per_s == pytest.approx(10, rel=0.02)
    assert found.completed_per_s == pytest.approx(5, rel=0.03)
    assert found.before_per_s == pytest.approx(5, rel=0.03)
    assert found.backlog == pytest.approx(300, abs=10)
    assert found.from_s == pytest.approx(40, abs=0.2) and found.to_s == 60
    assert "did not keep up" in found.told and "5.008 were completed" in found.told


def test_a_server_that_keeps_up() -> None:
    of = queue(10, 60, 12, lambda _: 1.0)
    found = judged(of, 60)
    assert found is not None and found.saturated is False
    assert found.completed_per_s == pytest.approx(10, rel=0.02)
    assert found.told == (
        "The server kept up: from 40.0 to 60.0 s 9.967 requests/s arrived and 9.967 were "
        "completed (100%; 80% is keeping up)."
    )


def test_a_run_that_is_shorter_than_its_requests_says_nothing() -> None:
    """Nothing has ended because nothing had the time to; with room for all of it."""
    young = judged(queue(10, 40, 1000, lambda _: 30.0), 30)
    assert young is not None and young.saturated is None
    assert young.told == (
        "Whether the server kept up is not known: from 20.0 to 30.0 s 9.933 requests/s "
        "arrived and 0 were completed, which may be chance, or requests that had no time to "
        "end; use a longer run."
    )
    assert not ever(queue(10, 40, 1000, lambda _: 30.0), 40)
    slow_half = queue(20, 40, 1000, lambda draw: 1.0 if draw.random() < 0.7 else 60.0, seed=3)
    assert not ever(slow_half, 40)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_queue_with_room_is_never_taken_for_a_full_one(seed: int) -> None:
    assert not ever(queue(9, 60, 14, lambda draw: draw.expovariate(1.0), seed=seed), 60)


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("times", [1.5, 4])
def test_one_without_is_found_out_in_half_a_minute(seed: int, times: float) -> None:
    assert ever(queue(10 * times, 30, 10, lambda draw: draw.expovariate(1.0), seed=seed), 30)


def test_shedding_load_is_not_keeping_up() -> None:
    shed = judged(queue(20, 30, 20, lambda _: 0.1, failing=0.5, seed=2), 30)
    assert shed is not None and shed.saturated
    few = judged(queue(20, 30, 20, lambda _: 0.1, failing=0.05, seed=2), 30)
    assert few is not None and few.saturated is False


def test_what_has_no_time_in_it_cannot_be_judged() -> None:
    assert saturation([], [], [], 5) is None
    assert saturation([7, 7, 7], [9], [7], 7) is None
    few = saturation([0, S, 2 * S], [S, 2 * S], [0, S], 2 * S)
    assert few is not None and few.saturated is None  # three requests are nothing to judge by
    assert "from 1.3 to 2.0 s fewer than 10 requests arrived; use a longer" in few.told
