"""Figures of databases whose contents are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.bench.providers import tables
from headrace.bench.providers.csv_file import COLUMNS, csv_text
from headrace.bench.providers.figures import Matrix, Quartiles, matrix
from headrace.bench.providers.read_store import read_store
from headrace.bench.providers.rows import VisitRow
from headrace.bench.providers.samples import batch_pass, efficiency, is_pair, whole_pass
from headrace.bench.statistics import Interval
from tests.bench.providers.made import Fares, failed_row, file, fill, priced, provider, row

SLOW, QUICK = Fares(100, 10), Fares(50, 5)


def visit(*requests: Any, **fields: Any) -> VisitRow:
    told = {"round": 0, "series": 0, "place": 0, "began_at": 0.0, "ended_at": 1.0, "message": ""}
    return VisitRow(
        **{**told, "outcome": "complete", "client_bound": None, **fields}, requests=requests
    )


def made(path: Path, rounds: int = 8, **fields: Any) -> Matrix:
    of = file(
        priced("slow", 2.0), provider("quick", usd_per_hour=3.6), single_requests=2, batch_size=2
    )
    fill(path, of, {"slow": SLOW, "quick": QUICK}, rounds, **fields)
    return matrix(read_store(path))


def test_medians_quartiles_and_rates_of_known_visits(tmp_path: Path) -> None:
    slow, quick = made(tmp_path / "p.db").providers
    assert slow.ttft_ms is not None
    assert (slow.ttft_ms.p50, slow.ttft_ms.q1, slow.ttft_ms.q3) == (100, 100, 100)
    assert slow.ttft_ms.count == 16
    assert slow.tps is not None
    assert slow.tps.p50 == pytest.approx(100)
    assert slow.e2e_ms is not None
    assert slow.e2e_ms.p50 == pytest.approx(300)
    # Two answers of 21 tokens in 1.2 times 300 ms.
    assert slow.tps_batch is not None
    assert slow.tps_batch.p50 == pytest.approx(42 / 0.36)
    # Alone it was 42 tokens in 600 ms; twice that would be 140 a second.
    assert slow.batching_efficiency is not None
    assert slow.batching_efficiency.p50 == pytest.approx(42 / 0.36 / 140)
    assert slow.characters_per_s is not None
    assert slow.characters_per_s.p50 == pytest.approx(80 / 0.2)
    assert (slow.visits, slow.answered, slow.requests, slow.failed) == (8, 8, 32, 0)
    assert quick.ttft_ms is not None
    assert quick.ttft_ms.p50_interval == Interval(50, 50)


def test_what_it_costs(tmp_path: Path) -> None:
    slow, quick = made(tmp_path / "p.db").providers
    # 50 tokens at $0.50 and 21 at $2 the million.
    assert slow.cost.per_million == pytest.approx((50 * 0.5 + 21 * 2) / 71)
    assert slow.cost.per_1000_requests == pytest.approx((50 * 0.5 + 21 * 2) / 1000)
    assert slow.cost.tps_per_usd_per_million == pytest.approx(100 / slow.cost.per_million)
    # $3.60 an hour are 0.1 cents a second.
    assert quick.tps_batch is not None
    assert quick.cost.per_million == pytest.approx(0.001 / quick.tps_batch.p50 * 1e6)
    assert quick.cost.per_1000_requests == pytest.approx(quick.cost.per_million * 21 / 1000)


def test_cached_tokens_cost_what_cached_ones_cost(tmp_path: Path) -> None:
    found = read_store(_one_series(tmp_path / "p.db"))
    series = found.series[0]
    said = {**series.said, "input_usd": 10.0, "output_usd": 0.0, "cached_usd": 1.0}
    cached = visit(row("single", 0, 0, SLOW, 1, cached_tokens=40))
    of = found._replace(series=(msgspec.structs.replace(series, said=said),), visits=(cached,))
    one = matrix(of).providers[0]
    assert one.cost.per_million == pytest.approx((10 * 10 + 40 * 1) / 71)
    assert one.cached_share == pytest.approx(0.8)


def _one_series(path: Path) -> Path:
    fill(path, file(provider("a")), {"a": SLOW}, 1)
    return path


def test_sequential_against_parallel(tmp_path: Path) -> None:
    slow = made(tmp_path / "p.db").providers[0].sequential
    assert slow is not None
    assert (slow.requests, slow.visits) == (2, 8)
    assert slow.single_wall_s == pytest.approx(0.6)
    assert slow.batch_wall_s == pytest.approx(0.36)
    assert slow.speedup == pytest.approx(0.6 / 0.36)
    assert (slow.single_tps, slow.batch_tps) == (pytest.approx(70), pytest.approx(42 / 0.36))
    assert (slow.single_e2e_ms, slow.batch_e2e_ms) == (pytest.approx(300), pytest.approx(360))


def test_only_the_same_prompts_all_answered_are_compared() -> None:
    both = [row("single", 0, 0, SLOW, 1), row("batch", 0, 400, SLOW, 1)]
    assert is_pair(visit(*both))
    assert not is_pair(visit(*both, row("batch", 1, 400, SLOW, 1)))
    assert not is_pair(visit(both[0], failed_row("batch", 0)))
    assert not is_pair(visit())


def test_a_batch_that_was_cut_short_has_no_rate() -> None:
    requests = [row("single", 0, 0, SLOW, 1), row("batch", 0, 400, SLOW, 1)]
    assert batch_pass(visit(*requests)) is not None
    assert batch_pass(visit(*requests, outcome="interrupted")) is None
    assert efficiency(visit(*requests, outcome="interrupted")) is None
    assert whole_pass([failed_row("batch", 0)]) is None
    # One that failed has no tokens, and its time counts.
    late = failed_row("batch", 1, end_ns=round(10e9), intended_ns=round(0.4e9))
    found = batch_pass(visit(*requests, late))
    assert found is not None
    assert found.tokens_per_s == pytest.approx(21 / 9.6)


def test_failed_and_cut_requests_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    of = file(provider("a"), single_requests=1, batch_size=1)
    fill(path, of, {"a": Fares(100, 10, failing=frozenset({1, 2}))}, 4)
    one = matrix(read_store(path)).providers[0]
    assert (one.visits, one.answered, one.requests, one.failed) == (4, 2, 6, 2)
    assert one.errors == {"http": 2}
    assert one.statuses == {"503": 2}
    assert [said.message for said in one.messages] == ["HTTP 503"]
    assert [point.ttft_ms for point in one.over_time] == [100, None, None, 100]
    found = read_store(path)
    cut = visit(failed_row("single", 0, error="cancelled"), outcome="interrupted")
    one = matrix(found._replace(visits=(cut,))).providers[0]
    assert (one.visits, one.requests, one.failed) == (0, 0, 0)


def test_what_is_not_as_it_seems_is_remarked(tmp_path: Path) -> None:
    found = read_store(_one_series(tmp_path / "p.db"))
    odd = visit(
        row("single", 0, 0, SLOW, 1, told_tokens=None, output_tokens_asked=100), client_bound=True
    )
    notes = " ".join(tables.remarks(matrix(found._replace(visits=(odd,), missed=2))))
    assert "a 1: the output was counted here" in notes
    assert "a 1: answers were shorter than requested" in notes
    assert "a 1: rounds in which this client was the limit" in notes
    assert "2 rounds of the schedule were missed" in notes


def test_slots_without_a_round_are_missed(tmp_path: Path) -> None:
    found = made(tmp_path / "p.db", skip=frozenset({3, 4}))
    assert (found.rounds, found.missed) == (6, 2)


def test_other_settings_are_another_series_that_says_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    fill(path, file(provider("a"), provider("b")), {"a": SLOW, "b": SLOW}, 1)
    now = file(provider("a", model="new"), provider("b"), batch_size=4)
    fill(path, now, {"a": QUICK, "b": QUICK}, 1, start=2e9)
    found = matrix(read_store(path))
    assert [one.label for one in found.providers] == ["a", "b", "a #2", "b #2"]
    assert found.changes == (
        "a #2: batch_size was 8 and is 4; model was 'm' and is 'new'",
        "b #2: batch_size was 8 and is 4",
    )
    assert len(found.workloads) == 2
    assert tables.batch_title(found) == "TPS of the batch"


def test_a_price_that_changes_is_no_other_series(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    fill(path, file(priced("a", 4.0)), {"a": SLOW}, 1)
    fill(path, file(priced("a", 8.0)), {"a": SLOW}, 1, start=2e9)
    found = matrix(read_store(path))
    assert [one.cost.output_usd for one in found.providers] == [8.0]


def spread(p50: float, low: float | None, high: float | None) -> Quartiles:
    return Quartiles(
        p50=p50, q1=p50, q3=p50, least=p50, most=p50, count=9, p50_interval=Interval(low, high)
    )


@pytest.mark.parametrize(
    ("first", "second", "marked"),
    [
        (spread(10, 9, 11), spread(20, 18, 22), 0),
        (spread(20, 18, 22), spread(10, 9, 11), 1),
        (spread(10, 9, 19), spread(20, 18, 22), None),  # they overlap
        (spread(10, None, None), spread(20, None, None), None),  # too few rounds
        (spread(10, 9, 11), None, None),  # nobody to be better than
    ],
)
def test_the_best_is_marked_only_beyond_doubt(
    tmp_path: Path, first: Quartiles | None, second: Quartiles | None, marked: int | None
) -> None:
    pair = [
        msgspec.structs.replace(one, ttft_ms=ttft)
        for one, ttft in zip(
            made(tmp_path / "p.db", rounds=1).providers, (first, second), strict=True
        )
    ]
    found = tables.best(pair, lambda one: one.ttft_ms, least=True)
    assert found is (None if marked is None else pair[marked])
    higher = tables.best(pair, lambda one: one.ttft_ms)
    assert higher is (None if marked is None else pair[1 - marked])


def test_the_csv_has_a_line_for_each_visit_and_no_formulas(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    of = file(provider("=cmd"), priced("b", 4.0), batch_size=2)
    fill(path, of, {"=cmd": SLOW, "b": QUICK}, 2)
    header, *lines = csv_text(matrix(read_store(path))).splitlines()
    assert header == ",".join(COLUMNS)
    assert len(lines) == 4
    assert all(",'=cmd," in line or ",b," in line for line in lines)
    assert lines[0].startswith("2026-09-21T14:13:20.000+00:00,0,")


def test_an_empty_database_has_no_figures(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    fill(path, file(provider("a")), {"a": SLOW}, 0)
    found = matrix(read_store(path))
    assert found.providers == ()
    assert found.began_at is None


@pytest.mark.parametrize(
    ("q1", "q3", "shown"), [(153, 181, "153–181 ms"), (900, 1200, "900 ms–1.2 s"), (0, 2, "0–2 ms")]
)
def test_a_unit_is_written_once(q1: float, q3: float, shown: str) -> None:
    of = msgspec.structs.replace(spread(q1, None, None), q1=q1, q3=q3)
    assert tables.timed(of).note == shown
