"""Sweeps and searches as Python calls, of runs that nobody sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from headrace.bench.load.experiment import Experiment, RunResult
from headrace.bench.load.load_options import LoadOptions
from headrace.bench.load.runner import Ending
from headrace.bench.load.search_runs import SearchOptions, run_search
from headrace.bench.load.sweep import SweepOptions, sweep_chosen
from headrace.bench.load.sweep_runs import run_sweep
from headrace.bench.slo import Slo, parse_slo
from headrace.bench.summary import summarize
from headrace.errors import ConfigError
from tests.bench.streams import run, steady


class Served:
    """In place of an Experiment: each run has ten requests, one after another, `ttft_ms` each."""

    def __init__(
        self,
        *,
        slo: Slo | None = None,
        saturated_from: float = 1e9,
        interrupted_at: int = 0,
        most_rate: float = 1e9,
    ) -> None:
        self.slo = slo
        self.asked: list[LoadOptions] = []
        self._saturated_from = saturated_from
        self._interrupted_at = interrupted_at
        self._most_rate = most_rate

    def run(self, options: LoadOptions, keep: Path | None = None) -> RunResult:
        assert keep is None
        self.asked.append(options)
        rate = options.rate or 0.0
        ending: Ending = "saturated" if rate >= self._saturated_from else "complete"
        if len(self.asked) == self._interrupted_at:
            ending = "interrupted"
        ttft_ms = 900 if rate > self._most_rate else 10
        record = run(*(steady(3, ttft_ms, 5, index=at, start_ms=at * 100) for at in range(60)))
        return RunResult(record, summarize(record, slo=self.slo), ending, options)

    @property
    def loads(self) -> list[tuple[float | None, int | None]]:
        return [(one.rate, one.concurrency) for one in self.asked]


def swept(served: Served, loads: SweepOptions, **given: Any) -> Any:
    return run_sweep(cast("Experiment", served), LoadOptions(requests=60, **given), loads)


def test_chosen_rates_come_in_ascending_order_with_the_limit_in_flight() -> None:
    served = Served()
    done = swept(served, SweepOptions(rates=(5.0, 0.5, 2.0)), concurrency=7)
    assert served.loads == [(0.5, 7), (2.0, 7), (5.0, 7)]
    assert [point.name for point in done.points] == ["0.5/s", "2/s", "5/s"]
    assert done.shown.options.rate == 5.0
    assert [point.offered_per_s for point in done.curve] == [0.5, 2.0, 5.0]
    assert done.batching_efficiencies == [None, None, None], "nothing to compare with"


def test_chosen_users_are_closed_loops() -> None:
    served = Served()
    done = swept(served, SweepOptions(users=(16, 1, 4)), processes=3, ramp_s=2.0)
    assert served.loads == [(None, 1), (None, 4), (None, 16)]
    assert [one.processes for one in served.asked] == [1, 3, 3]
    assert [one.ramp_s for one in served.asked] == [0.0, 2.0, 2.0]
    assert [point.users for point in done.curve] == [1, 4, 16]
    assert done.batching_efficiencies[0] is not None


def test_without_a_list_the_ends_and_what_lies_between() -> None:
    served = Served()
    done = swept(served, SweepOptions(points=3))
    assert served.loads[:2] == [(None, 1), (None, 64)]
    assert [point.users for point in done.points] == [1, 64], "both ends were equally fast"


def test_rates_above_one_that_is_too_much_are_left_out_where_that_was_asked() -> None:
    loads = SweepOptions(rates=(1.0, 2.0, 3.0, 4.0))
    served = Served(saturated_from=2.0)
    assert len(swept(served, loads, stop_when_saturated=True).points) == 2
    assert len(swept(Served(saturated_from=2.0), loads).points) == 4


def test_ctrl_c_ends_a_sweep() -> None:
    for loads in (SweepOptions(rates=(1.0, 2.0, 3.0)), SweepOptions(users=(1, 2, 3))):
        assert len(swept(Served(interrupted_at=2), loads).points) == 2


def test_who_runs_it_is_told_of_each_run() -> None:
    told: list[str] = []
    run_sweep(
        cast("Experiment", Served()),
        LoadOptions(requests=60),
        SweepOptions(users=(1, 2)),
        told=lambda name, done: told.append(f"{name}: {done.options.concurrency}"),
    )
    assert told == ["1 at a time: 1", "2 at once: 2"]


def test_names_tell_close_rates_apart() -> None:
    points = sweep_chosen(
        SweepOptions(rates=(1001.0, 1002.0)),
        at_rate=lambda rate, name: name,
        at_once=lambda users, name: name,
    )
    assert [point.result for point in points] == ["1001/s", "1002/s"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rates": (1.0, 2.0), "users": (1, 2)}, "are both lists"),
        ({"rates": (1.0,)}, "1 loads are not from 2 to 100"),
        ({"users": tuple(range(1, 102))}, "101 loads are not from 2 to 100"),
        ({"users": (0, 4)}, "0 is not a finite number above 0"),
        ({"rates": (1.0, float("nan"))}, "nan is not a finite number above 0"),
        ({"rates": (2.0, 2.0)}, "2 is listed twice"),
        ({"points": 2}, "--sweep 2 is not from 3 to 100 points"),
    ],
)
def test_loads_that_are_no_sweep(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SweepOptions(**given)
    assert told in str(raised.value)


def searched(served: Served, options: LoadOptions, **how: Any) -> Any:
    return run_search(
        cast("Experiment", served), options, SearchOptions(**how), clock_s=lambda: 0.0
    )


def test_a_search_is_a_call_too() -> None:
    served = Served(slo=parse_slo("ttft:100"), most_rate=40)
    done = searched(served, LoadOptions(rate=10.0, requests=60, ramp_s=3.0))
    assert done.result is not None and done.result.highest_met is not None
    assert done.result.highest_met <= 40 < done.result.lowest_not_met
    assert done.shown.options.rate == done.result.highest_met
    assert {one.ramp_s for one in served.asked} == {0.0}
    assert not done.interrupted and len(done.curve) == len(served.asked)


def test_a_search_without_a_rate_begins_with_what_one_user_gets() -> None:
    served = Served(slo=parse_slo("ttft:100"), interrupted_at=1)
    done = searched(served, LoadOptions(requests=60))
    assert served.loads == [(None, 1)]
    assert done.result is None and done.interrupted
    ended = Served(slo=parse_slo("ttft:100"), interrupted_at=2)
    done = searched(ended, LoadOptions(requests=60))
    assert ended.asked[1].rate == pytest.approx(summarize(done.shown.run).rps)
    assert done.interrupted


@pytest.mark.parametrize(
    ("slo", "told"),
    [(None, "a search needs an SLO"), (parse_slo("ttft:mean<5"), "requests meets;")],
)
def test_a_search_needs_an_slo_of_shares(slo: Slo | None, told: str) -> None:
    served = Served(slo=slo)
    with pytest.raises(ConfigError, match=told):
        searched(served, LoadOptions(rate=1.0))
    assert not served.asked
