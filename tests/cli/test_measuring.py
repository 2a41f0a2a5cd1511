"""`headrace bench` and `headrace eval` on the embedded model and tiny files."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli
from headrace.errors import ConfigError, FetchError, HeadraceError
from headrace.ops import make_ops
from headrace.telemetry.machine import Machine, store_machine, stored_machine
from tests import tiny
from tests.tiny import write_tiny_gguf

pytest.importorskip(
    "headrace.ops.cpu._native", reason="the kernels are not built", exc_type=ImportError
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Nothing is measured of this machine, whatever its user has stored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_gguf(tmp_path, "llama", "Q8_0", layers=1))


def measure(*more: str) -> None:
    run("bench", "machine", "--threads", "1", "--repeats", "1", "--footprints", "1,512", *more)


@pytest.mark.long
def test_a_machine_is_measured_and_stored(cache: dict[str, str]) -> None:
    result = run("bench", "machine", "--threads", "1", "--repeats", "1", "--footprints", "1,512")
    machine = stored_machine(cache)
    assert machine is not None and {one.threads for one in machine.read} == {1}
    assert "stored in" in result.stdout and "GB/s" in result.stdout
    level = make_ops("cpu", threads=1).level
    limits = machine.limits(level, 1, "Q8_0", "bf16")
    assert limits is not None and limits.bytes_per_s > 1e8 and limits.ops_per_s > 1e8


@pytest.mark.long
def test_levels_are_measured_one_after_another(cache: dict[str, str]) -> None:
    measure()
    measure("--cpu-level", "portable")
    machine = stored_machine(cache)
    assert machine is not None
    for level in ("portable", make_ops("cpu", threads=1).level):
        assert machine.limits(level, 1, "Q8_0", "bf16") is not None


@pytest.mark.parametrize(("least", "most", "said"), [(5e9, 5e9, False), (5e9, 8e9, True)])
def test_readings_that_differ_are_said_to(
    least: float, most: float, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = itertools.cycle((least, most))
    backend = "headrace.ops.cpu.CpuOps"
    monkeypatch.setattr(f"{backend}.read_bandwidth", lambda *_: next(readings))
    monkeypatch.setattr(f"{backend}.peak_rate", lambda *_: 1e12)
    result = run("bench", "machine", "--threads", "1", "--repeats", "2", "--footprints", "512")
    assert ("measure again" in result.stderr) == said


def test_a_measurement_can_be_printed_only(cache: dict[str, str]) -> None:
    result = run(
        "bench", "machine", "--threads", "1", "--repeats", "1", "--footprints", "1",
        "--no-store", "--json",
    )  # fmt: skip
    machine = msgspec.json.decode(result.stdout, type=Machine)
    assert [one.footprint_bytes for one in machine.read] == [1_000_000]
    assert stored_machine(cache) is None


@pytest.mark.long
def test_shares_appear_once_the_machine_is_measured(
    model: str, tmp_path: Path, cache: dict[str, str]
) -> None:
    arguments = ("bench", "engine", model, "-p", "32", "-n", "4", "-t", "1", "--repeats", "1")
    before = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    assert [one["test"] for one in before] == ["pp32", "tg4"]
    assert all(one["mbu"] is None and one["mfu"] is None for one in before)
    assert "MBU" not in run(*arguments).stdout
    plot = tmp_path / "roof.svg"
    with pytest.raises(HeadraceError, match="run `headrace bench machine` first"):
        run(*arguments, "--roofline", str(plot))
    measure()
    after = [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]
    assert all(one["mbu"] > 0 and one["mfu"] > 0 for one in after)
    table = run(*arguments, "--markdown", "--roofline", str(plot)).stdout
    assert "| test | batch |" in table and "MFU |" in table
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_the_memory_of_experts_is_a_setting_of_the_benchmark(tmp_path: Path) -> None:
    mixture = str(write_tiny_gguf(tmp_path, "qwen3_moe", "Q8_0"))
    for value, problem in (
        ("1", "--expert-cache-memory-bytes is 1; one matrix of an expert of this model takes"),
        ("some", "--expert-cache-memory-bytes is 'some'; expected an integer"),
    ):
        with pytest.raises(HeadraceError, match=problem):
            run(
                "bench",
                "engine",
                mixture,
                "-p",
                "8",
                "-n",
                "0",
                "--expert-cache-memory-bytes",
                value,
            )


def test_what_cannot_be_measured_is_refused(model: str) -> None:
    with pytest.raises(HeadraceError, match="nothing to time"):
        run("bench", "engine", model, "-p", "0", "-n", "0")
    with pytest.raises(HeadraceError, match="--depth 10 is not a multiple of 32"):
        run("bench", "engine", model, "--depth", "10")
    bad = CliRunner().invoke(cli, ["bench", "engine", model, "-b", "1,x"])
    assert bad.exit_code == 2 and "1,8,32" in bad.output
    bad = CliRunner().invoke(cli, ["bench", "engine", model, "-p", "-1"])
    assert bad.exit_code == 2


@pytest.mark.long
def test_tests_that_do_not_fit_are_refused_before_anything_is_timed(
    model: str, tmp_path: Path
) -> None:
    def refused(*arguments: str) -> str:
        with pytest.raises(HeadraceError) as error:
            run("bench", "engine", model, "-t", "1", *arguments)
        return str(error.value)

    assert "--batch" in refused("-b", "0")
    assert "model was made for 512 tokens. Use smaller" in refused("--depth", "512")
    assert "Use a smaller --batch" in refused("-p", "8", "-b", "1,900000000")
    measure()
    assert "does not exist; create it first" in refused(
        "-p", "8", "--roofline", str(tmp_path / "absent" / "roof.svg")
    )  # fmt: skip
    # Decodes of more requests than a step's usual budget are still one step each.
    result = run("bench", "engine", model, "-p", "0", "-n", "2", "-b", "600", "--repeats", "1")
    assert "tg2" in result.stdout


def test_a_measurement_that_cannot_be_kept_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    arguments = ["bench", "machine", "--threads", "1", "--repeats", "1", "--footprints", "1"]
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, HeadraceError)
    assert "XDG_CACHE_HOME" in str(result.exception) and "--no-store" in str(result.exception)
    assert "GB/s" in result.stdout
    for size in ("0", "1000000000"):
        with pytest.raises(HeadraceError, match=f"--footprints {size} is not in 1 to"):
            run("bench", "machine", "--footprints", size)


def test_hub_ids_are_taken_as_elsewhere(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is not on this disk is fetched, here from where nobody listens."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    text = tmp_path / "text"
    text.write_text("abc" * 100, encoding="utf-8")
    for arguments in (
        ("bench", "engine", "someone/something"),
        ("eval", "perplexity", "someone/something", "--text", str(text)),
        ("eval", "kl", model, "--base", "someone/something", "--text", str(text)),
    ):
        with pytest.raises(FetchError, match=r"127.0.0.1:9 cannot be reached"):
            run(*arguments)


def test_perplexity_and_divergence_of_files(tmp_path: Path, model: str) -> None:
    text = tmp_path / "text.py"
    text.write_text("def add(a, b):\n    return a + b\n" * 20, encoding="utf-8")
    shared = ("--text", str(text), "--context", "64", "--json", "-t", "1")
    one = json.loads(run("eval", "perplexity", model, *shared).stdout)
    assert one["windows"] == 10 and one["tokens"] == 10 * 31 and one["perplexity"] > 1
    same = json.loads(run("eval", "kl", model, "--base", model, *shared).stdout)
    assert same["kl_mean"] == 0 and same["same_top"] == 1
    exact = str(write_tiny_gguf(tmp_path, "llama", "F32", layers=1))
    other = json.loads(run("eval", "kl", model, "--base", exact, *shared).stdout)
    assert 0 < other["kl_mean"] < 0.05, "Q8_0 is close to what it was made of, and not equal"
    shown = run("eval", "kl", model, "--base", exact, *shared[:4]).stdout
    assert "KL divergence" in shown and "0.999 quantile" in shown and "ratio" in shown
    assert "perplexity" in run("eval", "perplexity", model, *shared[:4]).stdout


def test_files_are_measured_with_any_cache_that_the_engine_has(tmp_path: Path, model: str) -> None:
    text = tmp_path / "text.py"
    text.write_text("def add(a, b):\n    return a + b\n" * 20, encoding="utf-8")
    windows = {"sliding_window": 32}
    sliding = str(write_tiny_gguf(tmp_path, "gemma2", "F32", layers=2, **windows))
    shared = ("--text", str(text), "--context", "128", "--windows", "1", "--json", "-t", "1")

    def apart(*options: str) -> float:
        options = ("--base-kv-cache-dtype", "f32", *options)
        return float(
            json.loads(run("eval", "kl", sliding, "--base", sliding, *options, *shared).stdout)[
                "kl_mean"
            ]
        )

    assert apart() == 0
    whole = apart("--kv-cache-dtype", "q4_0", "--kv-cache-near", "none")
    assert 0 < apart("--kv-cache-dtype", "q4_0") < whole
    assert 0 < apart("--kv-cache-dtype-sliding", "q4_0", "--kv-cache-near", "none") < whole
    assert 0 < apart("--kv-cache-dtype-sliding-v", "q4_0") < whole
    with pytest.raises(
        HeadraceError, match="--kv-cache-dtype-sliding fp8 is for layers with a win"
    ):
        run("eval", "perplexity", model, *shared, "--kv-cache-dtype-sliding", "fp8")


def test_errors_of_tensors_are_printed_the_worst_first(tmp_path: Path, model: str) -> None:
    exact = str(write_tiny_gguf(tmp_path, "llama", "F32", layers=1))
    found = json.loads(run("eval", "tensors", model, "--base", exact, "--json").stdout)
    errors = {tensor["name"]: tensor["relative_rmse"] for tensor in found["tensors"]}
    assert 0 < errors["blk.0.attn_q.weight"] < 0.02 and errors["output_norm.weight"] == 0
    lines = run("eval", "tensors", model, "--base", exact).stdout.splitlines()
    worst = max(errors, key=lambda name: errors[name])
    assert lines[1].split()[0] == worst
    assert f"{found['exact']} hold the same values" in lines[-1]


def test_a_report_has_files_beside_their_reference(tmp_path: Path, model: str) -> None:
    exact = str(write_tiny_gguf(tmp_path, "llama", "F32", layers=1))
    text = tmp_path / "text.py"
    text.write_text("def add(a, b):\n    return a + b\n" * 9, encoding="utf-8")
    page = tmp_path / "report.html"
    given = ("--base", exact, "--text", str(text), "--context", "32", "--windows", "4", "-t", "1")
    timed = ("--new", "4", "--repeats", "1", "--html", str(page))
    found = json.loads(run("eval", "report", model, exact, *given, *timed, "--json").stdout)
    small, same = found["files"]
    assert small["facts"]["nbytes"] < same["facts"]["nbytes"] == found["base"]["facts"]["nbytes"]
    assert same["divergence"]["kl_mean"] == 0 < small["divergence"]["kl_mean"]
    assert small["front"] and same["front"] and found["base"]["divergence"] is None
    assert small["speed"]["tokens_per_s"] > 0 and found["base"]["speed"]["tokens_per_s"] > 0
    shown = page.read_text(encoding="utf-8")
    assert "Size and mean KL divergence" in shown and "://" not in shown
    plain = run("eval", "report", model, *given, "--no-speed").stdout
    assert "tokens/s" not in plain and "the reference" in plain
    with pytest.raises(ConfigError, match=r"report.txt: name a file that ends in .html"):
        run("eval", "report", model, *given, "--html", str(tmp_path / "report.txt"))


def test_text_is_split_as_the_command_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = tiny.gguf_tokenizer
    monkeypatch.setattr(tiny, "gguf_tokenizer", lambda *a: {**original(*a), "pre": "unheard-of"})
    path = str(write_tiny_gguf(tmp_path, "llama", "F32", layers=1))
    text = tmp_path / "text"
    text.write_text("abcd efgh " * 4, encoding="utf-8")
    arguments = ("eval", "perplexity", path, "--text", str(text), "--context", "8", "-t", "1")
    with pytest.raises(HeadraceError, match="--tokenizer-pre NAME"):
        run(*arguments)
    assert "perplexity" in run(*arguments, "--tokenizer-pre", "gpt-2").stdout


@pytest.mark.long
def test_a_measurement_of_another_machine_is_not_used(model: str, cache: dict[str, str]) -> None:
    measure()
    machine = stored_machine(cache)
    assert machine is not None
    store_machine(msgspec.structs.replace(machine, cpus=machine.cpus + 1), cache)
    arguments = ("bench", "engine", model, "-p", "16", "-n", "0", "-t", "1", "--repeats", "1")
    assert json.loads(run(*arguments, "--json").stdout)["mbu"] is None
