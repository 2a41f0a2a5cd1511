"""The search against servers whose truth is known, on a clock of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from headrace.bench.goodput import judge
from headrace.bench.load.demands import check_demands, is_met, judged_trial
from headrace.bench.load.evidence import Outcomes
from headrace.bench.load.search import Judged, Trial, search
from headrace.bench.load.sweep import rates, sweep
from headrace.bench.load.trial_length import trial_length
from headrace.bench.load_point import efficiencies
from headrace.bench.proportion import proportion_interval
from headrace.bench.record import RunRecord
from headrace.bench.search_result import SearchResult
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

    def trial(rate: float) -> Trial:
        clock.now_s += seconds
        good = [source.random() < share_at(rate) for _ in range(requests)]
        return Trial((Judged("each", 0.9, Outcomes(good, 1.0)),))

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
    assert 2 <= undecided[0].trials <= 10
    assert undecided[0].shares[0].judged == undecided[0].trials * 400


def test_the_budget_ends_it() -> None:
    result = found(lambda rate: 1.0 if rate <= 1000 else 0.1, 1, seconds=10, budget_s=25)
    assert len(result.steps) == 3
    assert result.highest_met == 4
    assert not result.decided
    assert "no higher rate was tried in time" in result.told


def test_a_server_that_never_meets_it() -> None:
    result = found(lambda rate: 0.1, 8, seconds=1, budget_s=6)
    assert result.highest_met is None
    assert not result.decided
    assert result.told == "no rate that was tried met the SLO"


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


def trial_run() -> RunRecord:
    """41 requests, 100 ms apart; good are the 26 below 27 ms."""
    records = [
        stream(
            (101 * at, "text", "a"),
            index=at,
            tokens=1,
            intended_ms=100 * at,
            sent_ms=100 * at,
        )
        for at in range(1, 42)
    ]
    return RunRecord(about={}, requests=tuple(records), health=IDLE)


def test_demands_are_shares_of_requests_but_the_first_fifth_and_the_last() -> None:
    slo = parse_slo("ttft:26 ttft:p95<35ms")
    found = judged_trial(slo, 0.8, trial_run(), saturated=True)
    of_each, of_all = found.judged
    assert (found.came, found.saturated) == (31, True)
    assert (of_each.wanted, of_all.wanted) == (0.8, 0.95)
    assert list(of_each.outcomes.good) == [at <= 26 for at in range(9, 40)]
    assert sum(of_all.outcomes.good) == 34 - 8
    # 24 ms of a request in flight in 100.
    assert of_each.outcomes.in_flight == pytest.approx(0.24, abs=0.02)
    nothing = RunRecord(about={}, requests=(), health=IDLE)
    assert judged_trial(slo, 0.8, nothing, saturated=False).judged == ()


def test_demands_that_no_search_decides() -> None:
    with pytest.raises(ConfigError, match="itl:p95<3"):
        check_demands(parse_slo("itl:p95<3"), 0.9)
    with pytest.raises(ConfigError, match="no number of good requests"):
        check_demands(parse_slo("ttft:5"), 1.0)
    check_demands(parse_slo("ttft:p95<5"), 1.0)


def test_how_long_a_trial_is() -> None:
    alone = RunRecord(about={}, requests=(stream((4000, "text", "a"), tokens=1),), health=IDLE)
    slo = parse_slo("ttft:500")
    length = trial_length(slo, 0.9, alone, math.inf)
    assert length.at(10) == pytest.approx(600, rel=0.01)
    assert length.at(0.1) == pytest.approx(1500)
    assert trial_length(slo, 0.9, runs(10), math.inf).at(100) == 30
    assert trial_length(parse_slo("ttft:9000"), 0.9, runs(10), math.inf).at(100) == 90
    short = trial_length(parse_slo("ttft:p95<500"), 0.9, alone, 600)
    assert short.at(10) == 60
    assert "a tenth of the budget, where 1200 s were needed" in short.rule


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
