"""`headrace plan explain`, `report`, and what all plans do with --html and --no-keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.plan.group import plan
from headrace.errors import ConfigError, HeadraceError

FIT = ("fit", "llama-3.1-70b", "--hardware", "h100", "--quantization", "q4-k-m")
REPORT = ("report", "llama-3.1-8b", "--hardware", "h100", "--batch", "8")


def run(*words: str) -> Result:
    return CliRunner().invoke(plan, list(words))


@pytest.mark.long
def test_the_last_plan_is_explained() -> None:
    done = run(*FIT)
    assert "headrace plan explain most-users" in done.output
    listed = run("explain").output
    assert "free-for-kv" in listed and "headrace plan fit llama-3.1-70b --hardware h100" in listed
    told = run("explain", "most-users").output
    for word in ("M6: most users", "free for KV", "h100-sxm.memory_bytes", "catalog hardware",
                 "aiconfigurator", "2026-08-01", "KV of a request"):  # fmt: skip
        assert word in told
    found = json.loads(run("explain", "usable", "--json").output)
    assert found["id"] == "usable" and found["inputs"][0]["catalog"]["row"] == "h100-sxm"
    ids = [one["id"] for one in json.loads(run("explain", "--json").output)["figures"]]
    assert "most-users" in ids


def test_disputed_facts_are_shown_with_what_others_say() -> None:
    run("speed", "llama-3.1-8b", "--hardware", "h100", "--quantization", "fp8")
    told = run("explain", "speed.ttft").output
    assert "disputed, see below: C32" in told and "disputed C32:" in told
    assert "used: " in told and "why: " in told


def test_a_saved_plan_is_read_and_no_keep_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(run(*FIT, "--json", "--no-keep").output)
    done = run("explain", "needed")
    assert isinstance(done.exception, ConfigError) and "make a plan first" in str(done.exception)
    assert "M7: needed" in run("explain", "needed", "--plan", str(path)).output
    done = run("explain", "neded", "--plan", str(path))
    assert isinstance(done.exception, ConfigError) and "'needed'" in str(done.exception)


def test_a_plan_that_is_not_kept_names_no_other_plan() -> None:
    output = run(*FIT, "--no-keep").output
    assert "without --no-keep, `headrace plan explain` says" in output
    assert "most-users (without an id" not in output


def test_a_plan_that_cannot_be_kept_is_no_reason_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    done = run(*FIT)
    assert done.exit_code == 0 and "is not kept for `headrace plan explain`" in done.output


def test_text_of_a_plan_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    plan_file = tmp_path / "plan.json"
    evil = "\x1b[31m[red]x[/red]"
    one = {"name": evil, "value": evil, "source": evil, "disputed_by": [evil]}
    figure = {"id": "a", "name": evil, "value": 1, "unit": evil, "low": 1, "high": 1,
              "formula_id": "M1", "formula": evil, "inputs": [one]}  # fmt: skip
    plan_file.write_text(json.dumps({"quantities": [figure], "model": evil}))
    for words in (("explain",), ("explain", "a")):
        done = run(*words, "--plan", str(plan_file))
        assert done.exit_code == 0 and "\x1b" not in done.output
        assert "[red]x[/red]" in done.output.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (FIT, "Does it fit"),
        (("speed", "llama-3.1-8b", "--hardware", "h100"), "How fast"),
        (("cost", "llama-3.3-70b", "--hardware", "h100", "--count", "4"), "At what cost"),
        (REPORT, "How fast"),
    ],
)
def test_each_plan_writes_a_page(words: tuple[str, ...], title: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.html"
    done = run(*words, "--html", str(path), "--no-keep")
    assert done.exit_code == 0, done.output
    assert f"saved in {path}" in done.stderr
    page = path.read_text()
    assert f"<h2>{title}</h2>" in page and f"headrace plan {' '.join(words[:2])}" in page
    assert "--no-keep" not in page and str(path) not in page
    done = run(*words, "--html", str(tmp_path), "--no-keep")
    assert done.exit_code != 0


def test_a_page_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(*FIT, "--html", str(tmp_path / "file" / "plan.html"))
    assert isinstance(done.exception, HeadraceError) and "plan.html" in str(done.exception)


@pytest.mark.long
def test_a_report_is_all_three() -> None:
    done = run(*REPORT, "--plot")
    assert done.exit_code == 0, done.output
    for word in ("most users", "speed.tpot", "cost.rented", "roofline, with the efficiencies",
                 "throughput against latency", "| usable"):  # fmt: skip
        assert word in done.output
    assert "cost.served" in run("explain", "cost.rented").output
    found = json.loads(run(*REPORT, "--json").output)
    assert found["fit"]["verdict"] == "fits" and found["speed"]["points"] and found["cost"]["ways"]
    assert "quantities" not in found["fit"] and found["refused"] == []


@pytest.mark.long
def test_plots_are_drawn_where_they_are_asked_for() -> None:
    words = ("cost", "llama-3.3-70b", "--hardware", "h100", "--count", "4")
    assert "x: tokens a month (log)" in run(*words, "--plot").output
    assert "x: tokens a month (log)" not in run(*words).output


SIMULATE = ("simulate", "llama-3.1-8b", "--hardware", "h100", "--rate", "5", "--duration", "4",
            "--prompt", "50", "--output", "5")  # fmt: skip
RECOMMEND = ("recommend", "--task", "chat", "--model", "qwen3-32b", "--hardware", "h100-sxm",
             "--on", "2026-11-22", "--rate", "3")  # fmt: skip
CASCADE = ("cost", "llama-3.3-70b", "--hardware", "h100", "--count", "4", "--quantization", "fp8",
           "--cascade", "llama-3.1-8b", "--escalation", "0.2")  # fmt: skip
APART = ("speed", "llama-3.1-8b", "--hardware", "h100", "--apart", "1:2")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "title", "example"),
    [
        (SIMULATE, "What the service does", "simulate.ttft.p95"),
        (RECOMMEND, "What to run", "recommend.qwen3-32b.fp8.vllm.1xh100-sxm.month"),
        (CASCADE, "A small model first", "cascade.latency"),
        (APART, "How fast", "apart.requests"),
    ],
)
def test_every_figure_of_a_plan_is_kept_explained_and_on_its_page(
    words: tuple[str, ...], title: str, example: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.html"
    done = run(*words, "--html", str(path))
    assert done.exit_code == 0, done.output
    page = path.read_text()
    assert f"<h2>{title}</h2>" in page and f"headrace plan {words[0]}" in page
    figures = json.loads(run("explain", "--json").output)["figures"]
    ids = [one["id"] for one in figures]
    assert len(set(ids)) == len(ids) and example in ids
    for id in ids:
        assert f'id="figure-{id}"' in page
    said = run("explain").output
    assert ids[0] in said  # whole, to be copied
    told = run("explain", example).output
    assert "not in this plan" not in told and "data sheet" in told
    saved = tmp_path / "plan.json"
    saved.write_text(run(*words, "--json", "--no-keep").output)
    assert json.loads(run("explain", example, "--plan", str(saved), "--json").output)["inputs"]


@pytest.mark.long
def test_a_plan_of_fit_says_where_heads_do_not_divide() -> None:
    said = run("fit", "llama-3.1-8b", "--hardware", "h100", "--count", "3", "--no-keep").output
    assert "32 attention heads cannot be divided over 3 devices" in " ".join(said.split())
    said = run("fit", "llama-3.1-8b", "--hardware", "h100", "--count", "4", "--no-keep").output
    assert "do not divide" not in said
    report = (*REPORT, "--count", "6", "--tensor-parallel", "2", "--no-keep")
    assert "do not divide" not in run(*report).output


METRICS = """\
vllm:spec_decode_num_drafts_total 100
vllm:spec_decode_num_draft_tokens_total 400
vllm:spec_decode_num_accepted_tokens_total 200
headrace:spec_decode_compared_steps_total 100
headrace:spec_decode_compared_tokens_total 300
headrace:spec_decode_compared_seconds_total 3.0
headrace:spec_decode_plain_seconds_total 2.0
"""


def test_predictions_of_drafts_stand_beside_what_was_counted(tmp_path: Path) -> None:
    metrics, plan_file = tmp_path / "metrics.txt", tmp_path / "plan.json"
    metrics.write_text(METRICS, "utf-8")
    speed = ("speed", "llama-3.1-8b", "--hardware", "h100", "--batches", "1", "--json")
    plan_file.write_text(run(*speed, "--draft-acceptance", "0.5").output, "utf-8")
    words = ("explain", "--plan", str(plan_file), "--measured", str(metrics))
    told = run(*words).output
    assert "100 rows with 4.00 drafts each, 50% accepted" in " ".join(told.split())
    found = json.loads(run(*words, "--json").output)["figures"]
    by_id = {one["id"]: one for one in found}
    tokens = by_id["speed.speculation.tokens"]
    assert tokens["predicted"] == pytest.approx(1.9375) and tokens["measured"] == 3
    assert tokens["error"] == pytest.approx(1.9375 / 3 - 1)
    assert by_id["speed.speculation.cost"]["measured"] == 1.5
    assert by_id["speed.speculation"]["measured"] == 2

    plan_file.write_text(run(*speed).output, "utf-8")
    with pytest.raises(ConfigError, match="predicts nothing of drafts"):
        CliRunner().invoke(plan, list(words), catch_exceptions=False)
    with pytest.raises(ConfigError, match="is of drafts: omit"):
        CliRunner().invoke(plan, [*words, "speed.tpot"], catch_exceptions=False)
