"""`headrace bench compare` and `report`: from kept results, without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.bench.definitions import DEFINITIONS
from headrace.bench.journal import begin, begun
from headrace.bench.report import compare as comparing
from headrace.bench.report.files import read_result, write_run
from headrace.bench.series import Series, SeriesRun, write_series
from headrace.bench.slo import parse_slo
from headrace.bench.summary import summarize
from headrace.bench.vllm_result import vllm_keys
from headrace.cli.bench import compare as compare_command
from headrace.cli.bench.group import bench
from headrace.cli.bench.load import load_command
from tests.bench.report.synthetic import simulated
from tests.bench.test_reply_journal import GOOD, asked, journal_in

SLO = parse_slo("ttft:500 tpot:50")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(bench, list(arguments))


def write(folder: Path, gap_ms: float = 14, slo: str = SLO.text, **about: Any) -> str:
    made = simulated(seed=1, requests=40, rate=6, gap_ms=gap_ms, metrics=False, about=about)
    parsed = parse_slo(slo)
    keys = vllm_keys(made.about, rate=6.0, concurrency=None)
    write_run(folder, made, summarize(made, slo=parsed), slo=parsed, vllm_keys=keys)
    return str(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    return write(folder / "old"), write(folder / "new", gap_ms=28, load="other")


def test_metrics_are_those_of_the_comparison() -> None:
    assert compare_command.METRICS == comparing.METRICS


def test_definitions_that_can_be_asked_for_are_those_there_are() -> None:
    assert tuple(DEFINITIONS) == load_command.DEFINITIONS


@pytest.mark.load
def test_two_runs_side_by_side(pair: tuple[str, str], tmp_path: Path) -> None:
    page = tmp_path / "sub" / "compare.html"
    done = run("compare", pair[0], f"{pair[1]}/result.json", "--html", str(page))
    assert done.exit_code == 0, done.output
    for part in ("Comparison, by headrace", "old", "new", "tpot", "good", "The loads differ"):
        assert part in done.output
    assert "Distributions" in page.read_text()


def test_chosen_metrics_as_json_under_other_definitions(pair: tuple[str, str]) -> None:
    done = run(
        *("compare", *pair, "--json", "--metric", "e2e", "--definitions", "vllm"),
        *("--name", "before", "--name", "after"),
    )
    told = json.loads(done.stdout)
    assert told["names"] == ["before", "after"] and told["definition"] == "vllm"
    assert {line["metric"] for line in told["lines"]} == {"e2el, intended", "e2el, sent"}
    assert told["caveats"][0]["misleads"] is True


@pytest.mark.load
def test_thresholds_decide_the_exit_status(pair: tuple[str, str]) -> None:
    good = run("compare", *pair, "--metric", "tpot", "--fail-if", "tpot_p95>9")
    assert good.exit_code == 0 and "kept" in good.output
    bad = run("compare", *pair, "--fail-if", "tpot_p95>9", "--fail-if", "tpot_p50>1.2")
    assert bad.exit_code == 1
    assert "headrace: --fail-if tpot_p50>1.2: new has" in bad.output


def test_runs_with_different_slos(pair: tuple[str, str], tmp_path: Path) -> None:
    other = write(tmp_path / "c", slo="ttft:100")
    done = run("compare", pair[0], other, "--metric", "good", "--metric", "tpot")
    assert "goodput is omitted: add --goodput" in done.output and "good  " not in done.output
    done = run("compare", pair[0], other, "--metric", "good", "--goodput", "ttft:300")
    assert "100 %" in done.output


@pytest.mark.load
def test_names_are_told_apart(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a" / "run"), write(tmp_path / "b" / "run")
    told = json.loads(run("compare", first, second, "--json", "--metric", "tpot").stdout)
    assert told["names"] == [first, second]
    told = json.loads(run("compare", first, first, "--json", "--metric", "tpot").stdout)
    assert told["names"] == ["run (1)", "run (2)"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["one"], "there is 1 run to compare; name two results or more"),
        (["nowhere", "nowhere"], "cannot be read: No such file or directory"),
        (["one", "text"], "is not a result of headrace bench"),
        (["one", "summary"], "has a summary but no requests: add --save DIR"),
        (["one", "vllm"], "name a result.json that it wrote"),
        (["one", "one", "--fail-if", "ttft>1"], "ttft has many values"),
        (["one", "one", "--name", "a"], "--name was given 1 times for 2 results"),
        (["one", "one", "--goodput", "ttft"], "is not name:limit"),
    ],
)
def test_what_cannot_be_compared(tmp_path: Path, arguments: list[str], said: str) -> None:
    write(tmp_path / "one")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "summary").write_text('{"about": {}, "summary": {"definition": "headrace"}}')
    (tmp_path / "vllm").write_text('{"completed": 3, "request_throughput": 1.0}')
    found = [
        str(tmp_path / one) if one in ("one", "nowhere", "text", "summary", "vllm") else one
        for one in arguments
    ]
    done = run("compare", *found)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split()), done.output


def test_a_run_is_shown_again_under_other_definitions(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    page, folder = tmp_path / "page.html", tmp_path / "anew"
    done = run(
        *("report", pair[0], "--definitions", "vllm", "--goodput", "ttft:1"),
        *("--html", str(page), "--save", str(folder)),
    )
    assert done.exit_code == 0, done.output
    assert "Latency, by vllm" in done.output and "Goodput under ttft:1" in done.output
    assert "Definitions: vllm" in page.read_text()
    anew = read_result(folder)
    assert anew.summary.definition == "vllm" and anew.slo == "ttft:1"
    assert (folder / "report.html").read_text() == page.read_text()
    was, now = (json.loads((Path(one) / "result.json").read_bytes()) for one in (pair[0], folder))
    assert (now["model_id"], now["request_rate"], now["num_prompts"]) == ("headrace-base", 6.0, 35)
    assert was.keys() == now.keys()


def test_a_run_that_was_killed_is_shown_as_partial(tmp_path: Path) -> None:
    begin(tmp_path, begun({"definitions": "headrace"}, None))
    journal = journal_in(tmp_path)
    for at in range(3):
        journal.add(asked(at), GOOD, stream=True)
    journal.file.close()
    page = tmp_path / "page.html"
    done = run("report", str(tmp_path), "--html", str(page), "--save", str(tmp_path / "whole"))
    assert done.exit_code == 0, done.output
    assert "partial: The client did not finish: these are the 3 requests" in done.output
    assert "The client did not finish" in page.read_text()
    told = json.loads(run("report", str(tmp_path), "--json").stdout)
    assert told["about"]["ending"] == "partial" and told["partial"]
    assert read_result(tmp_path / "whole").about["ending"] == "partial"


@pytest.mark.load
def test_a_sweep_is_shown_with_its_curve(pair: tuple[str, str], tmp_path: Path) -> None:
    runs = []
    for at, rate in enumerate((None, 2.0, 4.0), start=1):
        write(tmp_path / "runs" / f"{at}", gap_ms=14 + at)
        runs.append(SeriesRun(name=f"load {at}", rate=rate, folder=f"runs/{at}"))
    write(tmp_path)
    made = Series(kind="sweep", runs=tuple(runs), attainment=0.9, shown="runs/3")
    write_series(tmp_path, made)
    page = tmp_path / "page.html"
    done = run("report", str(tmp_path), "--definitions", "vllm", "--html", str(page))
    assert done.exit_code == 0, done.output
    assert "Loads" in done.output and "load 2" in done.output
    assert "End-to-end latency over output tokens per second" in page.read_text()
    assert len(json.loads(run("report", str(tmp_path), "--json").stdout)["sweep"]) == 3


def test_a_folder_without_a_result(tmp_path: Path) -> None:
    done = run("report", str(tmp_path))
    assert done.exit_code == 2 and "contains neither result.json" in done.output
