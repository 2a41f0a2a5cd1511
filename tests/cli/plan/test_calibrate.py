"""`headrace plan calibrate` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from headrace import __version__
from headrace.cli.main import cli
from headrace.errors import ConfigError
from headrace.plan.calibration.measurements import MeasurementSet, read_measured, write_measured
from tests.plan.calibrations import LARGE, SMALL, TESTS, measured
from tests.plan.runs import about, alone, crowded, write_run
from tests.plan.test_measured_steps import STEPS
from tests.tiny import write_tiny_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is measured of this machine, whatever its user has stored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(cli, ["plan", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def refused(*words: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(cli, ["plan", *map(str, words)], catch_exceptions=False)
    return str(caught.value)


@pytest.fixture
def sets(tmp_path: Path) -> list[Path]:
    found = []
    for model in (SMALL, LARGE):
        path = tmp_path / f"{model}.json"
        of_here = msgspec.structs.replace(measured(model, noise=0.02), version=__version__)
        write_measured(path, [of_here])
        found.append(path)
    return found


@pytest.mark.long
def test_fit_store_plan_and_turn_off(sets: list[Path], cache: Path) -> None:
    fitted = run("calibrate", "--from", sets[0]).output
    (path,) = (cache / "headrace" / "calibration").glob("headrace-*.json")
    assert f"stored in {path}" in fitted
    assert "each test, predicted by a fit without it" in fitted and "the 5 worst" in fitted
    speed = ("speed", SMALL, "--quantization", "q8-0", "--batches", "1")
    planned = run(*speed).output
    assert "int8 products, calibrated" in planned and "T2C" in planned
    assert json.loads(run(*speed, "--json").output)["basis"] == "calibrated"
    with_cost = run(
        "cost", SMALL, "--quantization", "q8-0", "--price", "1000", "--power", "99"
    ).output
    assert "note: calibrated: " in with_cost
    assert "run `headrace bench machine` first" in refused(*speed, "--no-calibration")
    shown = run("calibrate").output
    assert f"as stored in {path}" in shown and "Q8_0" in shown


def test_fit_on_one_and_predict_the_other(sets: list[Path], cache: Path) -> None:
    done = run("calibrate", "--from", sets[0], "--check", sets[1], "--no-store", "--json")
    found = json.loads(done.stdout)
    assert len(found["checked"]) == len(TESTS)
    assert found["checked_error"]["mean"] < 0.06
    assert {row["model"] for row in found["checked"]} == {"Llama 3.2 1B"}
    assert not (cache / "headrace").exists()
    table = run("calibrate", "--from", sets[0], "--check", sets[1], "--no-store").output
    assert "predicted, not fitted to" in table and "checked: off by" in table


def test_a_fit_is_not_checked_against_what_it_was_fitted_to(sets: list[Path]) -> None:
    assert "other results" in refused("calibrate", "--from", sets[0], "--check", sets[0])


def test_what_explains_nothing_is_not_stored(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "noise.json"
    of_here = msgspec.structs.replace(measured(SMALL, noise=1.5), version=__version__)
    write_measured(path, [of_here])
    done = run("calibrate", "--from", path).output
    assert "rates do not explain these tests" in done and "not stored: its mean error is" in done
    assert not (cache / "headrace").exists()


def test_both_models_have_errors_without_each(sets: list[Path]) -> None:
    shown = run("calibrate", "--from", sets[0], "--from", sets[1], "--no-store", "--rows").output
    assert "each model, predicted by a fit without it" in shown and "every test" in shown
    assert shown.count("Llama 3.2 1B") == 1 + len(TESTS)


def test_what_it_cannot_do(sets: list[Path], tmp_path: Path) -> None:
    assert "add --measure" in refused("calibrate", "model.gguf")
    assert "needs a MODEL" in refused("calibrate", "--measure")
    assert "there is no calibration of this machine" in refused("calibrate")
    one = read_measured(sets[0])[0]
    other = tmp_path / "threads.json"
    write_measured(other, [msgspec.structs.replace(one, threads=7)])
    assert "differ in threads: 2, 7" in refused("calibrate", "--from", sets[0], "--from", other)


def test_measure_fit_and_go_on(tmp_path: Path, cache: Path) -> None:
    """On a tiny model: that it runs and keeps what it has, not what it finds."""
    pytest.importorskip(
        "headrace.ops.cpu._native", reason="the kernels are not built", exc_type=ImportError
    )
    model = write_tiny_gguf(tmp_path, "llama", "Q8_0", layers=1, max_positions=100)
    words = ("calibrate", "--measure", model, "--repeats", "1", "--threads", "1")
    first = run(*words)
    assert "tests, about 1 min; keep the machine otherwise idle" in first.stderr
    (kept,) = read_measured(cache / "headrace" / "calibration" / "measured.json")
    assert isinstance(kept, MeasurementSet) and kept.kind == "Q8_0" and kept.threads == 1
    assert {row.test.positions <= 100 for row in kept.rows} == {True}
    again = run(*words)
    assert f"0 tests, about 0 min, {len(kept.rows)} are kept" in again.stderr
    (same,) = read_measured(cache / "headrace" / "calibration" / "measured.json")
    assert same == kept


def test_results_of_bench_engine_are_taken(tmp_path: Path) -> None:
    pytest.importorskip(
        "headrace.ops.cpu._native", reason="the kernels are not built", exc_type=ImportError
    )
    model = write_tiny_gguf(tmp_path, "llama", "Q8_0", layers=1, max_positions=100)
    words = ["--json", "-p", "32,64", "-n", "16", "-b", "1,2", "--repeats", "1", "--threads", "1"]
    done = CliRunner().invoke(cli, ["bench", "engine", str(model), *words], catch_exceptions=False)
    path = tmp_path / "lines.json"
    path.write_text(done.stdout)
    found = json.loads(run("calibrate", "--from", path, "--json").stdout)
    assert [row["test"] for row in found["rows"]][:2] == ["pp32 b1", "pp64 b1"]
    assert found["models"][0]["kind"] == "Q8_0" and found["threads"] == 1


def test_runs_of_bench_load_say_how_a_model_is_served(sets: list[Path], tmp_path: Path) -> None:
    name = read_measured(sets[0])[0].model
    folders = [
        write_run(tmp_path / each, msgspec.structs.replace(one, about=about(name)))
        for each, one in (("one-user", alone()), ("users", crowded()))
    ]
    assert "headrace plan calibrate --measure" in refused("calibrate", "--from", folders[0])
    run("calibrate", "--from", sets[0])
    told = run("calibrate", "--from", folders[0], "--from", folders[1] / "result.json").output
    assert "as served" in told and "150 requests in 2 runs" in told and "stored in" in told
    kept = json.loads(run("calibrate", "--json").stdout)["models"][0]["served"]
    assert kept["fitted"] and kept["latency"]["request_s"] == pytest.approx(0.005, rel=0.1)
    assert "streams of headrace bench load" in kept["latency"]["source"]
    assert "which is not calibrated" in refused("calibrate", "--from", write_run(
        tmp_path / "other", alone()
    ))  # fmt: skip


@pytest.mark.long
def test_what_drafts_cost_is_measured(tmp_path: Path, cache: Path) -> None:
    """On a tiny model that drafts for itself: that it is kept, not what it is."""
    pytest.importorskip(
        "headrace.ops.cpu._native", reason="the kernels are not built", exc_type=ImportError
    )
    model = write_tiny_gguf(tmp_path, "llama", "Q8_0", layers=1, max_positions=1024)
    words = ("calibrate", "--measure", model, "--repeats", "1", "--threads", "1", "--longest", 32)
    done = run(*words, "--draft-model", model)
    assert "passes of the draft" in done.stderr and f"pass of {model.name[:6]}" in done.output
    (kept,) = read_measured(cache / "headrace" / "calibration" / "measured.json")
    assert kept.draft_steps is not None and kept.draft_steps.batches == (1, 2, 4, 8, 16, 32)
    assert "steps of 1 requests" not in run(*words, "--draft-model", model).stderr


@pytest.mark.long
def test_plans_take_what_drafts_cost(sets: list[Path]) -> None:
    (one,) = read_measured(sets[0])
    write_measured(sets[0], [msgspec.structs.replace(one, draft_steps=STEPS)])
    told = run("calibrate", "--from", sets[0]).output
    assert "a step with so many drafts of each over one without" in told and "pass of small" in told
    of = (SMALL, "--quantization", "q8-0")
    speed = run("speed", *of, "--draft-acceptance", "0.5", "--draft-model", "small", "--json")
    found = json.loads(speed.output)["speculation"]
    assert found["step_cost"].startswith("measured") and found["draft_cost"] == found["step_cost"]
    load = ("--rate", "1", "--duration", "5", "--prompt", "20", "--output", "20")
    drafts = ("--acceptance", "0.5", "--draft-model")
    told = run("simulate", *of, *load, *drafts, "models/small").output
    assert "steps with drafts take what was measured" in told and "passes of small" in told
    assert "were not measured" in refused("simulate", *of, *load, *drafts, "unknown")


def test_a_draft_without_a_model_is_refused() -> None:
    assert "add --measure MODEL" in refused("calibrate", "--draft-model", "draft.gguf")
