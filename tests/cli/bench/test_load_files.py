"""`headrace bench load`: pages, sweeps on disk, and what a killed client leaves behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.bench.journal import is_journal
from headrace.bench.reply_journal import read_reply_journal
from headrace.bench.report.saved_run import read_saved_run
from headrace.bench.series import read_series
from headrace.cli.bench.group import bench
from tests.cli.bench.test_load import SHORT, mock, run


def test_a_page_alone_and_no_folder(tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    with mock() as endpoint:
        done = run(endpoint.url, "-c", "2", "-n", "6", *SHORT, "--html", str(page))
    assert done.exit_code == 0, done.output
    assert "Time to first token" in page.read_text()
    assert list(page.parent.iterdir()) == [page]


def test_a_page_that_cannot_be_written_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with mock() as endpoint:
        done = run(endpoint.url, "-n", "2", *SHORT, "--html", str(tmp_path / "file" / "page.html"))
        assert not endpoint.received
    assert done.exit_code == 2 and "--html" in done.output


@pytest.mark.load
def test_a_sweep_keeps_every_run(tmp_path: Path) -> None:
    with mock() as endpoint:
        done = run(
            *(endpoint.url, "--sweep", "3", "-c", "4", "-n", "8", *SHORT),
            *("--save", str(tmp_path), "--goodput", "ttft:60000"),
        )
    assert done.exit_code == 0, done.output
    assert "Loads" in done.output and "1 at a time" in done.output
    series = read_series(tmp_path)
    assert series is not None and series.kind == "sweep" and len(series.runs) >= 2
    kept = read_saved_run(tmp_path)
    assert kept.partial == "" and kept.series == series
    assert kept.run == read_saved_run(tmp_path / (series.shown or "")).run
    assert not is_journal(tmp_path / series.runs[0].folder)
    with mock() as endpoint:
        run(endpoint.url, "-c", "2", "-n", "4", *SHORT, "--save", str(tmp_path))
    assert read_series(tmp_path) is None, "the curves are of runs that are not this one"


@pytest.mark.load
def test_a_search_keeps_its_steps(tmp_path: Path) -> None:
    with mock() as endpoint:
        done = run(
            *(endpoint.url, "--search", "--rate", "200", "--highest-rate", "200", "-n", "40"),
            *(*SHORT, "--goodput", "ttft:60000", "--save", str(tmp_path)),
        )
    assert done.exit_code == 0, done.output
    series = read_series(tmp_path)
    assert series is not None and series.search is not None
    assert f"{series.search.told} (" in done.output and f"{series.search.sure}." in done.output
    assert series.search.highest_met == 200.0
    assert "Search for the highest rate" in (tmp_path / "report.html").read_text()


@pytest.mark.load
def test_a_search_tells_how_long_its_trials_are_before_the_first() -> None:
    load = ["--search", "--rate", "300", "--highest-rate", "300", "--goodput", "ttft:60000"]
    loud = [one for one in SHORT if one != "--quiet"]
    with mock() as endpoint:
        chosen = run(endpoint.url, *load, "-n", "40", *loud)
        found = run(endpoint.url, *load, "--budget", "3", *loud)
        quiet = run(endpoint.url, *load, "-n", "40", *SHORT)
    rule = "Trials are as long as --requests or --duration sets"
    assert rule in chosen.stderr and rule not in quiet.stderr
    assert chosen.stderr.index(rule) < chosen.stderr.index("300/s: ")
    assert rule not in found.stderr
    told = r"Trials of 0\.3 s: the longest of 30 s, 150 times the E2E of a lone request \(\S+ s\)"
    assert re.search(rf"{told} and 10 times the longest limit \(60 s\); at low", found.stderr)
    assert "cut to a tenth of the budget, where 600 s were needed" in found.stderr


def test_a_run_that_is_made_anew_has_the_statistics_that_it_was_asked_for(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    flags = ["--percentiles", "12.5,99.5", "--percentile-metrics", "ttft", "--save-detailed"]
    with mock() as endpoint:
        done = run(endpoint.url, "-c", "2", "-n", "4", *SHORT, "--save", str(first), *flags)
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(bench, ["report", str(first), "--save", str(again)])
    assert shown.exit_code == 0, shown.output
    kept = [json.loads((folder / "result.json").read_bytes()) for folder in (first, again)]
    assert kept[0] == kept[1]
    assert "p12.5_ttft_ms" in kept[1] and "p50_ttft_ms" not in kept[1]
    assert "mean_tpot_ms" not in kept[1] and len(kept[1]["ttfts"]) == 4


@pytest.mark.process
def test_a_killed_client_leaves_what_had_ended(tmp_path: Path) -> None:
    with mock(ttft_ms=20) as endpoint:
        command = [sys.executable, "-m", "headrace", "bench", "load", endpoint.url]
        kept_too = ["--save", str(tmp_path), "--price-per-hour", "2"]
        client = subprocess.Popen([*command, "-c", "2", "--duration", "600", *SHORT, *kept_too])
        try:
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and client.poll() is None:
                if is_journal(tmp_path) and len(read_reply_journal(tmp_path)[1]) >= 4:
                    break
                time.sleep(0.1)
        finally:
            client.kill()
            client.wait()
    kept = read_saved_run(tmp_path)
    assert "The client did not finish" in kept.partial
    assert kept.run.about["model"] == "mock" and kept.prices.hour_usd == 2
    assert kept.vllm_keys["max_concurrency"] == 2 and kept.vllm_keys["model_id"] == "mock"
    assert len(kept.run.requests) >= 4
    assert all(one.failure is None and one.content for one in kept.run.requests)
