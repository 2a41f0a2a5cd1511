"""What runs, sweeps and searches leave on disk, whole or in part."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from headrace.bench.cost import Prices
from headrace.bench.definitions import DEFINITIONS
from headrace.bench.journal import begin, begun
from headrace.bench.report.files import write_run
from headrace.bench.report.saved_run import read_saved_run
from headrace.bench.report.series import series_points
from headrace.bench.search_result import SearchResult
from headrace.bench.series import Series, SeriesRun, forget_runs, read_series, write_series
from headrace.bench.slo import parse_slo
from headrace.bench.summary import summarize
from headrace.bench.vllm_form import VllmForm
from headrace.errors import ConfigError
from tests.bench.report.synthetic import simulated
from tests.bench.test_reply_journal import GOOD, asked, journal_in

SLO = parse_slo("ttft:500 tpot:50")
MADE = simulated(requests=20, rate=5, metrics=False)


def write(folder: Path, prices: Prices = Prices()) -> Path:  # noqa: B008 - frozen
    write_run(folder, MADE, summarize(MADE, slo=SLO, prices=prices), slo=SLO)
    return folder


def series_in(folder: Path, shown: str | None = None, runs: int = 3) -> Series:
    entries = []
    for at in range(1, runs + 1):
        within = f"runs/{at:02}"
        write(folder / within)
        entries.append(SeriesRun(name=f"{at}/s", rate=float(at), folder=within))
    made = Series(kind="sweep", runs=tuple(entries), attainment=0.9, shown=shown)
    write_series(folder, made)
    return made


def test_a_whole_run_by_any_of_its_names(tmp_path: Path) -> None:
    write(tmp_path, Prices(hour_usd=2.0))
    for path in (tmp_path, tmp_path / "result.json", tmp_path / "requests.jsonl"):
        kept = read_saved_run(path)
        assert kept.run == MADE and kept.slo == SLO and kept.partial == ""
        assert kept.prices.hour_usd == 2.0, "so that costs can be made anew"
        assert kept.series is None


def test_a_run_whose_client_was_killed(tmp_path: Path) -> None:
    prices, keys = Prices(hour_usd=2.0), {"model_id": "m", "request_rate": 3.0}
    about = {"model": "m", "definitions": "vllm"}
    form = VllmForm(percentiles=(12.5,), detailed=True)
    begin(tmp_path, begun({**about}, "ttft:500", msgspec.to_builtins(prices), {**keys}, form))
    journal = journal_in(tmp_path)
    journal.add(asked(0), GOOD, stream=True)
    journal.file.close()
    kept = read_saved_run(tmp_path)
    assert "the 1 requests that had ended" in kept.partial
    assert kept.run.about == {"model": "m", "definitions": "vllm", "ending": "partial"}
    assert kept.slo == parse_slo("ttft:500") and len(kept.run.requests) == 1
    assert (kept.prices, kept.vllm_keys, kept.vllm_form) == (prices, keys, form)
    assert summarize(kept.run).client.client_bound is None


def test_a_newer_run_that_was_killed_goes_before_an_older_whole_one(tmp_path: Path) -> None:
    write(tmp_path)
    begin(tmp_path, begun({}, None))
    journal_in(tmp_path).file.close()
    assert read_saved_run(tmp_path).partial
    assert read_saved_run(tmp_path / "result.json").run == MADE


def test_requests_without_a_result(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "result.json").unlink()
    for path in (tmp_path, tmp_path / "requests.jsonl"):
        kept = read_saved_run(path)
        assert (
            kept.run.requests == MADE.requests and "without the settings of the run" in kept.partial
        )


def test_a_sweep_is_read_with_all_of_its_runs(tmp_path: Path) -> None:
    series = series_in(tmp_path, "runs/03")
    write(tmp_path)
    kept = read_saved_run(tmp_path)
    assert kept.series == series and kept.partial == "" and kept.series_folder == tmp_path
    points = list(series_points(tmp_path, series, DEFINITIONS["vllm"], SLO))
    assert [(one.name, one.offered_per_s) for one in points] == [
        ("1/s", 1.0),
        ("2/s", 2.0),
        ("3/s", 3.0),
    ]
    assert all(one.e2e is not None and one.judged == 15 for one in points), "vllm calls it e2el"


def test_a_sweep_that_was_killed(tmp_path: Path) -> None:
    series_in(tmp_path)
    begin(tmp_path / "runs" / "04", begun({}, None))
    kept = read_saved_run(tmp_path)
    assert "it has 3 runs; part of the next run is there, too" in kept.partial
    assert kept.run == MADE


def test_a_sweep_that_was_killed_in_its_first_run(tmp_path: Path) -> None:
    write_series(tmp_path, Series(kind="search", runs=(), attainment=0.9))
    with pytest.raises(ConfigError, match="no run of the search has been saved"):
        read_saved_run(tmp_path)
    begin(tmp_path / "runs" / "01", begun({}, None))
    assert "it has 0 runs" in read_saved_run(tmp_path).partial


def test_runs_of_an_older_sweep_are_forgotten(tmp_path: Path) -> None:
    series_in(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    forget_runs(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["notes.txt", "runs"]
    assert list((tmp_path / "runs").iterdir()) == []
    forget_runs(tmp_path)


def test_a_search_comes_back(tmp_path: Path) -> None:
    found = SearchResult(
        highest_met=4.0, lowest_not_met=4.1, decided=True, confidence=0.95, steps=(), told="met"
    )
    made = Series(kind="search", runs=(), attainment=0.95, search=found)
    write_series(tmp_path, made)
    assert read_series(tmp_path) == made


def test_what_is_no_result_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"contains neither result.json nor series.json nor partial"
    ):
        read_saved_run(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_saved_run(tmp_path / "nowhere.json")
    series_in(tmp_path, runs=1)
    broken = msgspec.json.decode((tmp_path / "series.json").read_bytes())
    for change, said in (
        ({"format": 7}, "has format 7, this version reads 1"),
        ({"runs": [{"name": "a", "rate": 1, "folder": "../up"}]}, "folder is outside"),
        ({"runs": 3}, "is not a list of runs"),
    ):
        (tmp_path / "series.json").write_bytes(msgspec.json.encode({**broken, **change}))
        with pytest.raises(ConfigError, match=said):
            read_saved_run(tmp_path)
    shutil.rmtree(tmp_path / "runs")
