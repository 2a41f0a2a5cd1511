"""`headrace bench load`: pages, sweeps on disk, and what a killed client leaves behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from headrace.bench.journal import is_journal
from headrace.bench.load.reply_journal import read_reply_journal
from headrace.bench.report.kept import read_kept
from headrace.bench.series import read_series
from tests.cli.test_bench_load import SHORT, mock, run


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
    kept = read_kept(tmp_path)
    assert kept.partial == "" and kept.series == series
    assert kept.run == read_kept(tmp_path / (series.shown or "")).run
    assert not is_journal(tmp_path / series.runs[0].folder)
    with mock() as endpoint:
        run(endpoint.url, "-c", "2", "-n", "4", *SHORT, "--save", str(tmp_path))
    assert read_series(tmp_path) is None, "the curves are of runs that are not this one"


def test_a_search_keeps_its_steps(tmp_path: Path) -> None:
    with mock() as endpoint:
        done = run(
            *(endpoint.url, "--search", "--rate", "200", "--highest-rate", "200", "-n", "40"),
            *(*SHORT, "--goodput", "ttft:60000", "--save", str(tmp_path)),
        )
    assert done.exit_code == 0, done.output
    series = read_series(tmp_path)
    assert series is not None and series.search is not None
    assert series.search.highest_met == 200.0
    assert "Search for the highest rate" in (tmp_path / "report.html").read_text()


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
    kept = read_kept(tmp_path)
    assert "The client did not come to its end" in kept.partial
    assert kept.run.about["model"] == "mock" and kept.prices.hour_usd == 2
    assert kept.vllm_keys["max_concurrency"] == 2 and kept.vllm_keys["model_id"] == "mock"
    assert len(kept.run.requests) >= 4
    assert all(one.failure is None and one.content for one in kept.run.requests)
