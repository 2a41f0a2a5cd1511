"""The search against servers whose truth is known, on a clock of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from headrace.bench.goodput import judge
from headrace.bench.load.demands import check_demands, is_met, shares
from headrace.bench.load.search import SearchResult, Share, search
from headrace.bench.load.sweep import efficiencies, rates, sweep
from headrace.bench.proportion import proportion_interval
from headrace.bench.record import RunRecord
from headrace.bench.slo import parse_slo
from headrace.errors import ConfigError
from tests.bench.streams import IDLE, stream


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def found(
    share_at: Callable[[float], float],
    first: float,
    *,
    requests: int = 400,
    seconds: float = 0.0,
    **limits: float,
) -> SearchResult:
    """share_at: the true good share at a rate, 0.9 of which is wanted."""
    source, clock = random.Random(7), Clock()

    def trial(rate: float) -> list[Share]:
        clock.now_s += seconds
        good = sum(source.random() < share_at(rate) for _ in range(requests))
        return [Share(name="each", wanted=0.9, good=good, judged=requests)]

    return search(trial, first, clock_s=clock, **limits)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [1.0, 37.0, 900.0])
def test_a_sharp_limit_is_found_from_either_side(first: float) -> None:
    result = found(lambda rate: 0.99 if rate <= 40 else 0.3, first)
    assert result.decided
    assert result.highest_met is not None
    assert result.lowest_not_met is not None
    assert result.highest_met <= 40 < result.lowest_not_met
    assert result.lowest_not_met / result.highest_met <= 1.05 * (1 + 1e-9)


def test_a_share_that_cannot_be_told_apart_is_undecided_and_counts_as_not_met() -> None:
    result = found(lambda rate: 0.99 if rate < 30 else 0.9 if rate < 60 else 0.2, 10)
    assert not result.decided
    assert result.highest_met is not None
    assert result.highest_met < 30
    assert "undecided" in result.told
    undecided = [step for step in result.steps if step.standing == "undecided"]
    assert undecided
    assert undecided[0].trials == 5
    assert undecided[0].shares[0].judged == 5 * 400


def test_the_budget_ends_it() -> None:
    result = found(lambda rate: 0.99 if rate <= 1000 else 0.1, 1, seconds=10, budget_s=25)
    assert len(result.steps) == 3
    assert result.highest_met == 4
    assert not result.decided
    assert "nothing higher was tried in time" in result.told


def test_a_server_that_never_meets_it() -> None:
    result = found(lambda rate: 0.1, 8, seconds=1, budget_s=6)
    assert result.highest_met is None
    assert not result.decided
    assert result.told == "no rate that was tried met it"


def test_the_highest_rate_that_is_allowed_is_not_passed() -> None:
    result = found(lambda rate: 1.0, 5, highest_rate=16)
    assert [step.rate for step in result.steps] == [5, 10, 16]
    assert result.decided


def test_decisions_are_wrong_no_oftener_than_they_say() -> None:
    source = random.Random(3)
    wrong = 0
    for _ in range(200):
        good = sum(source.random() < 0.9 for _ in range(60))
        low, high = proportion_interval(good, 60, 0.025)
        wrong += not low <= 0.9 <= high
    assert wrong <= 0.05 * 200 + 3 * math.sqrt(0.05 * 0.95 * 200)


def test_intervals_are_those_of_the_tables() -> None:
    # Clopper and Pearson for 8 of 10 at 95 %, and the rule of three for none of n.
    low, high = proportion_interval(8, 10, 0.025)
    assert (low, high) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert proportion_interval(0, 100, 0.05)[1] == pytest.approx(1 - 0.05 ** (1 / 100))
    assert proportion_interval(0, 0, 0.025) == (0.0, 1.0)
    assert proportion_interval(5, 5, 0.025)[1] == 1.0


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 1.0])
def test_many_requests_have_nearly_the_exact_interval(share: float) -> None:
    exact = proportion_interval(round(2000 * share), 2000, 0.025)
    near = proportion_interval(round(2001 * share), 2001, 0.025)
    assert near == pytest.approx(exact, abs=1e-3)
    low, high = proportion_interval(round(1_000_000 * share), 1_000_000, 0.025)
    assert low <= share <= high and high - low < 0.0021


def runs(*ttfts_ms: float) -> RunRecord:
    records = [
        stream((at, "text", "a"), index=number, tokens=1) for number, at in enumerate(ttfts_ms)
    ]
    return RunRecord(about={}, requests=tuple(records), health=IDLE)


def test_demands_are_shares_of_requests() -> None:
    run = runs(10, 20, 30, 400)
    of_each, of_all = shares(parse_slo("ttft:25 ttft:p95<350ms"), 0.8, run)
    assert (of_each.good, of_each.judged, of_each.wanted) == (2, 4, 0.8)
    assert (of_all.good, of_all.judged, of_all.wanted) == (3, 4, 0.95)
    with pytest.raises(ConfigError, match="itl:p95<3"):
        check_demands(parse_slo("itl:p95<3"))


@pytest.mark.parametrize(
    ("slo", "attainment", "met"),
    [
        ("ttft:25", 0.5, True),
        ("ttft:25", 0.6, False),
        ("ttft:p50<100", 0.9, True),
        ("ttft:25 ttft:p50<10", 0.5, False),
        ("tpot:p50<10", 0.5, False),
    ],
)
def test_whether_a_run_met_it(slo: str, attainment: float, met: bool) -> None:
    goodput = judge(parse_slo(slo), runs(10, 20, 30, 400).requests, 1.0)
    assert is_met(goodput, attainment) is met


def test_a_sweep_runs_the_ends_and_what_lies_between() -> None:
    asked: list[float] = []

    def at_rate(rate: float) -> float:
        asked.append(rate)
        return rate

    points = sweep(
        5,
        synchronous=lambda: 2.0,
        throughput=lambda: 10.0,
        at_rate=at_rate,
        completed_per_s=lambda result: result,
    )
    assert [point.rate for point in points] == [None, 4.0, 6.0, 8.0, None]
    assert asked == rates(2.0, 10.0, 3) == [4.0, 6.0, 8.0]
    flat = sweep(
        5,
        synchronous=lambda: 2.0,
        throughput=lambda: 2.0,
        at_rate=at_rate,
        completed_per_s=lambda result: result,
    )
    assert [point.name for point in flat] == ["synchronous", "throughput"]


def test_a_sweep_leaves_out_the_rates_above_one_that_is_too_much() -> None:
    points = sweep(
        7,
        synchronous=lambda: 2.0,
        throughput=lambda: 14.0,
        at_rate=lambda rate: rate,
        completed_per_s=lambda result: result,
        saturated=lambda result: result >= 6.0,
    )
    assert [point.rate for point in points] == [None, 4.0, 6.0, None]


def test_what_batching_gained_at_each_load() -> None:
    # Alone 50 tokens/s; 8 in flight as fast each; 16 in flight half as fast; one not known.
    loads = [(50.0, 1.0), (400.0, 8.0), (400.0, 16.0), (None, 4.0), (400.0, None)]
    assert efficiencies(loads) == [1.0, 1.0, 0.5, None, None]
    assert efficiencies([(None, 1.0), (10.0, 1.0)]) == [None, None]
    assert efficiencies([]) == []
