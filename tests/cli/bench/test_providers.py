"""`headrace bench providers`: what it prints and keeps, what it refuses, its exit statuses."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from headrace.cli.bench.group import bench
from tests.cli.bench.test_load import mock

SMALL: dict[str, Any] = {
    "input_tokens": 8,
    "output_tokens": 3,
    "single_requests": 1,
    "batch_size": 2,
}
NOBODY = "http://127.0.0.1:1"


def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(bench, ["providers", *map(str, arguments)], env=env)


def written(folder: Path, *urls: str, **fields: Any) -> Path:
    """A file of providers named a, b, …"""
    listed = [
        {"name": name, "base_url": url, "model": "mock", "price": {"input": 1, "output": 2}}
        for name, url in zip("abc", urls, strict=False)
    ]
    path = folder / "p.yaml"
    told = {**SMALL, **fields, "providers": listed}
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    return path


def test_a_round_is_shown_kept_and_reported_without_sending(tmp_path: Path) -> None:
    with mock() as endpoint:
        path = written(tmp_path, endpoint.url, endpoint.url)
        html, lines = tmp_path / "p.html", tmp_path / "p.csv"
        done = run(path, "--once", "--html", html, "--csv", lines)
        assert done.exit_code == 0, done.output
        assert "TPS of 2" in done.output
        assert "round 0: a: TTFT" in done.output
        sent = len(endpoint.received)
        assert sent == 6
        again = run("--report", "--db", tmp_path / "p.db", "--json")
        assert len(endpoint.received) == sent
    assert again.exit_code == 0, again.output
    found = json.loads(again.output)
    assert [one["label"] for one in found["providers"]] == ["a", "b"]
    assert found["providers"][0]["requests"] == 3
    assert found["providers"][0]["ttft_ms"]["p50"] > 0
    assert found["providers"][0]["cost"]["per_million"] > 1
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert len(lines.read_text(encoding="utf-8").splitlines()) == 3
    assert sorted(one.name for one in tmp_path.iterdir()) == ["p.csv", "p.db", "p.html", "p.yaml"]


def test_compare_sends_the_batch_one_after_another_too(tmp_path: Path) -> None:
    with mock() as endpoint:
        done = run(written(tmp_path, endpoint.url), "--once", "--compare", "--quiet")
    assert done.exit_code == 0, done.output
    assert "Sequential against parallel" in done.output
    with sqlite3.connect(tmp_path / "p.db") as on:
        phases = on.execute("SELECT phase, position FROM requests ORDER BY 1, 2").fetchall()
    assert phases == [("batch", 0), ("batch", 1), ("single", 0), ("single", 1)]


@pytest.mark.parametrize(
    ("answers", "arguments", "status", "said"),
    [
        ((True, False), (), 1, "nothing succeeded at b"),
        ((False, False), (), 3, "no provider gave an answer"),
        ((True, True), ("--max-error-rate", "0"), 0, ""),
    ],
)
def test_exit_statuses(
    tmp_path: Path,
    answers: tuple[bool, bool],
    arguments: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    with mock() as endpoint:
        urls = [endpoint.url if one else NOBODY for one in answers]
        done = run(written(tmp_path, *urls), "--once", *arguments)
    assert done.exit_code == status, done.output
    assert said in done.output


def test_too_many_failures_are_status_1(tmp_path: Path) -> None:
    with mock(errors=(("truncated", 0.5),), seed=3) as endpoint:
        path = written(tmp_path, endpoint.url, single_requests=6, batch_size=6)
        done = run(path, "--once", "--max-error-rate", "0.1")
    assert done.exit_code == 1, done.output
    assert "more than --max-error-rate 0.1: a (" in done.output


def test_a_refused_key_is_in_no_output_and_no_file(tmp_path: Path) -> None:
    key = "sk-wrong-0123456789"
    with mock(api_key="right") as endpoint:
        path = written(tmp_path, endpoint.url)
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
        told["providers"][0]["api_key_env"] = "A_KEY"
        path.write_text(yaml.safe_dump(told), encoding="utf-8")
        done = run(path, "--once", "--html", tmp_path / "p.html", env={"A_KEY": key})
    assert done.exit_code == 3, done.output
    assert "a is paused: check the key in A_KEY" in done.output
    assert key not in done.output
    assert not any(key.encode() in one.read_bytes() for one in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "FILE is missing"),
        (("--report",), "--report needs FILE or --db"),
        (("--report", "--once", "--db", "x.db"), "--once has no effect"),
        (("--report", "--db", "absent.db"), "the file does not exist"),
        (("absent.yaml",), "No such file"),
        (("p.yaml", "--html", "absent/p.html"), "--html absent/p.html: the folder does not exist"),
        (("p.yaml", "--last", "soon"), "--last: 'soon' is not a time"),
        (("p.yaml", "--db", "p.yaml"), "not a database"),
    ],
)
def test_wrong_usage_is_status_2_and_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, NOBODY)
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert said in done.output


def test_a_database_of_other_settings_is_refused(tmp_path: Path) -> None:
    run(written(tmp_path, NOBODY), "--once")
    path = written(tmp_path, NOBODY, batch_size=3)
    refused = run(path, "--once")
    assert refused.exit_code == 2
    assert "batch_size was 2 and is 3" in refused.output
    appended = run(path, "--once", "--append")
    assert appended.exit_code == 3
    assert "a #2" in appended.output


@pytest.mark.process
def test_a_kill_leaves_what_was_measured_and_no_lock(tmp_path: Path) -> None:
    with mock() as quick, mock(tpot_ms=3_600_000) as hangs:
        path = written(tmp_path, quick.url, quick.url, hangs.url)
        command = [sys.executable, "-m", "headrace", "bench", "providers", str(path)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not hangs.received and process.poll() is None:
            time.sleep(0.05)
        process.kill()
        process.wait(60)
        # Whoever was measured before the one that hangs is there, and nothing of that one.
        found = json.loads(run("--report", "--db", tmp_path / "p.db", "--json").output)
        kept = [one for one in found["providers"] if one["requests"]]
        assert len(kept) == len(quick.received) / 3
        assert all(one["name"] != "c" for one in kept)
        assert run(written(tmp_path, quick.url), "--once", "--append", "--quiet").exit_code == 0
