"""The search against queues, whose requests are not independent: it names no rate that misses.

Limits of wait (service takes 1 s in the mean): for 90 % below 0.5 s, eight servers. M/M/8: Erlang's
C, P(wait > t) = C exp(-(8 - rate) t). M/D/8: 2 million requests of one queue, the first tenth left
out, rate bisected twelve times with equal random numbers (numpy's default_rng(5)); 6.385/s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapreplace
from statistics import median

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.bench.load.demands import ENDING, FILLING
from headrace.bench.load.evidence import Outcomes, effective_number, share_interval, student
from headrace.bench.load.search import Judged, Trial, search
from headrace.bench.search_result import SearchResult

Times = NDArray[np.float64]
Waits = Callable[[Times, np.random.Generator], tuple[Times, Times]]

SERVERS, LIMIT_S, WANTED = 8, 0.5, 0.9
TRUE_LIMIT_OF_EQUAL_SERVICE = 6.385
TRIAL_S = 15 / (1 - WANTED)


def equal_service(came: Times, _source: np.random.Generator) -> tuple[Times, Times]:
    """M/D/c, vectorised: requests go to the servers in turn, each of which is a queue of its own.

    Returns waits and services, in seconds.
    """
    waits = np.empty_like(came)
    for server in range(SERVERS):
        mine = came[server::SERVERS]
        turn = np.arange(len(mine))
        waits[server::SERVERS] = np.maximum.accumulate(mine - turn) + turn - mine
    return waits, np.ones_like(came)


def drawn_service(came: Times, source: np.random.Generator) -> tuple[Times, Times]:
    """M/M/c: each request takes the server that is free first."""
    services = source.exponential(size=len(came))
    free = [0.0] * SERVERS
    waits = []
    for at, service in zip(came.tolist(), services.tolist(), strict=True):
        begin = max(at, free[0])
        heapreplace(free, begin + service)
        waits.append(begin - at)
    return np.array(waits), services


def trial_of(waits_of: Waits, source: np.random.Generator) -> Callable[[float], Trial]:
    """An empty queue at its begin, as a run of the command has."""

    def trial(rate: float) -> Trial:
        came = np.cumsum(source.exponential(size=round(rate * TRIAL_S)))
        came *= TRIAL_S / came[-1]
        waits, services = waits_of(came, source)
        begin, end = FILLING * TRIAL_S, (1 - ENDING) * TRIAL_S
        judged = (came >= begin) & (came <= end)
        ended = came + waits + services
        in_flight = float((waits + services)[judged].sum() / (end - begin))
        outcomes = Outcomes((waits[judged] <= LIMIT_S).tolist(), in_flight)
        return Trial(
            (Judged("each request", WANTED, outcomes),),
            came=int(judged.sum()),
            ended=int(((ended >= begin) & (ended <= end)).sum()),
        )

    return trial


def good_share(rate: float) -> float:
    """Erlang's C, from his B."""
    blocked = 1.0
    for servers in range(1, SERVERS + 1):
        blocked = rate * blocked / (servers + rate * blocked)
    waiting = blocked / (1 - rate / SERVERS * (1 - blocked))
    return 1 - waiting * math.exp(-(SERVERS - rate) * LIMIT_S)


def true_limit_of_drawn_service() -> float:
    low, high = 0.0, SERVERS - 1e-9
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if good_share(middle) >= WANTED else (low, middle)
    return low


def named(waits_of: Waits, seed: int) -> SearchResult:
    trial = trial_of(waits_of, np.random.default_rng(seed))
    return search(trial, 1.0, clock_s=lambda: 0.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("waits_of", "limit", "seeds"),
    [
        (equal_service, TRUE_LIMIT_OF_EQUAL_SERVICE, 25),
        (drawn_service, true_limit_of_drawn_service(), 12),
    ],
)
def test_the_rate_it_names_meets_the_slo(waits_of: Waits, limit: float, seeds: int) -> None:
    rates = [named(waits_of, seed).highest_met or 0.0 for seed in range(seeds)]
    # 5 % may be wrong: of 25 at most three, of 12 two, each with a chance above 96 %.
    assert sum(rate > limit for rate in rates) <= (3 if seeds == 25 else 2)
    assert median(rates) >= 0.9 * limit


def test_a_queue_that_grows_is_missed_though_all_were_good() -> None:
    outcomes = Outcomes((True,) * 1000, 1.0)

    def trial(rate: float) -> Trial:
        grows = rate > 10
        return Trial((Judged("e", 0.9, outcomes),), came=1000, ended=800 if grows else 1000)

    result = search(trial, 4.0, clock_s=lambda: 0.0)
    assert result.highest_met is not None and 9.5 < result.highest_met <= 10
    assert {step.kept_up for step in result.steps if step.rate > 10} == {False}
    shed = search(
        lambda rate: Trial((Judged("e", 0.9, outcomes),), saturated=rate > 6),
        4.0,
        clock_s=lambda: 0.0,
    )
    assert shed.highest_met is not None and shed.highest_met <= 6


def test_requests_that_fare_alike_say_less() -> None:
    source = np.random.default_rng(3)
    alone = Outcomes((source.random(2000) < 0.8).tolist(), 1.0)
    groups = Outcomes(np.repeat(source.random(100) < 0.8, 20).tolist(), 1.0)
    assert effective_number([alone], 0.025) > 500
    assert effective_number([groups], 0.025) < 200
    assert effective_number([Outcomes((True,) * 400, 8.0)], 0.025) == 50
    assert effective_number([Outcomes((True,) * 19, 1.0)], 0.025) == 0
    assert effective_number([], 0.025) == 0
    assert share_interval(0.0, 0.0, 0.025) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("probability", "freedom", "wanted"),
    [(0.975, 1, 12.706), (0.975, 4, 2.776), (0.995, 9, 3.250), (0.9995, 30, 3.646)],
)
def test_quantiles_are_those_of_the_tables(probability: float, freedom: int, wanted: float) -> None:
    assert student(probability, freedom) == pytest.approx(wanted, abs=5e-4)
