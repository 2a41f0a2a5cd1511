"""`headrace quantize` and `headrace imatrix` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli
from headrace.errors import ConfigError
from headrace.weights.gguf.file import read_gguf
from headrace.weights.quantize.importance import read_importance
from tests.tiny import write_tiny_gguf
from tests.weights.quantize.models import write_model


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "model.gguf"))


def test_a_file_is_made_and_described(model: str, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = run("quantize", model, str(out), "--type", "q4_k_m", "--tensor-type", "attn_q=Q8_0")
    first, second = result.output.splitlines()[-2:]
    assert first.startswith(f"{out}: Q4_K_M, 1.") and "bits per weight, in" in first
    assert second.startswith("tensors: 9 F32, ") and "4 Q8_0" in second
    assert read_gguf(out).tensors["blk.1.attn_q.weight"].codec.name == "Q8_0"
    with pytest.raises(ConfigError, match="exists already; --force replaces it"):
        run("quantize", model, str(out), "--type", "Q8_0")
    run("quantize", model, str(out), "--type", "Q8_0", "--force")
    assert read_gguf(out).metadata["general.file_type"] == 7


def test_json_has_a_line_for_each_tensor_and_one_at_the_end(model: str, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = run("quantize", model, str(out), "--type", "Q6_K", "--json")
    *tensors, done = (json.loads(line) for line in result.output.splitlines())
    assert [line["number"] for line in tensors] == list(range(1, len(tensors) + 1))
    assert tensors[0] | {"from": "BF16", "to": "Q6_K", "event": "tensor"} == tensors[0]
    assert tensors[-1]["done_values"] == tensors[-1]["total_values"] == done["values"]
    assert done["event"] == "done" and done["bytes"] == out.stat().st_size
    assert sum(done["kinds"].values()) == len(tensors)


def test_a_dry_run_writes_nothing_and_says_what_would_be(model: str, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    lines = run("quantize", model, str(out), "--type", "Q4_K_M", "--dry-run").output.splitlines()
    assert "output.weight  BF16 > Q6_K  26,880 bytes" in lines
    assert lines[-1].startswith("39 tensors, ") and lines[-1].endswith("bits per weight")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_importance_is_measured_and_used(tmp_path: Path) -> None:
    model = str(write_tiny_gguf(tmp_path, "llama", "F32", layers=1, hidden_size=256))
    text, importance = tmp_path / "text.txt", tmp_path / "im.gguf"
    text.write_text("What is read is what matters. " * 8, encoding="utf-8")
    options = ["--text", str(text), "--context", "32", "-o", str(importance)]
    result = run("imatrix", model, *options, "--json")
    told = json.loads(result.output)
    assert told["matrices"] == 7 and told["unseen"] == []
    assert read_importance(importance).datasets == ("text.txt",)
    with pytest.raises(ConfigError, match="exists already; --force replaces it"):
        run("imatrix", model, *options)
    plain, weighed = tmp_path / "a.gguf", tmp_path / "b.gguf"
    run("quantize", model, str(plain), "--type", "Q4_K_S")
    run("quantize", model, str(weighed), "--type", "Q4_K_S", "--imatrix", str(importance))
    name = "blk.0.attn_output.weight"
    a, b = (read_gguf(path).tensors[name] for path in (plain, weighed))
    assert a.codec is b.codec and a.data.tobytes() != b.data.tobytes()
    assert read_gguf(weighed).metadata["quantize.imatrix.dataset"] == "text.txt"


def test_a_target_needs_a_text_and_nothing_beside_it(model: str, tmp_path: Path) -> None:
    out = str(tmp_path / "o.gguf")
    for arguments, message in (
        ([], "nothing says what to make: give --type, --format, --target-size or"),
        (["--target-size", "1MB"], "--target-size is met by measuring: name a UTF-8 file with"),
        (["--target-kl", "1", "--type", "Q4_K"], "--type and --target-kl exclude each other"),
        (["--target-kl", "1", "--pure", "--text", "t"], "chooses the kinds itself; omit --pure"),
        (
            ["--type", "Q8_0", "--text", "t", "--windows", "16"],
            "--text, --windows: --type measures",
        ),
        (["--type", "Q8_0", "--curve-points", "2"], "--curve-points: --type measures nothing"),
        (["--type", "Q8_0", "--measurements", "m"], "--type measures nothing; omit them"),
    ):
        with pytest.raises(ConfigError, match=message):
            run("quantize", model, out, *arguments)
    for size in ("4x", "GiB", "-1", "1e9"):
        result = CliRunner().invoke(cli, ["quantize", model, out, "--target-size", size])
        assert result.exit_code == 2 and "is not a size such as 4GiB" in result.output


def test_a_file_of_a_size_is_made_and_the_curve_is_printed(tmp_path: Path) -> None:
    pytest.importorskip("headrace.ops.cpu._native", exc_type=ImportError)
    model = str(write_tiny_gguf(tmp_path, "llama", "F32", layers=1, hidden_size=256))
    text, out = tmp_path / "text.txt", tmp_path / "out.gguf"
    text.write_text("What is kept is what was measured. " * 20, encoding="utf-8")
    options = ["--target-size", "0.3 MiB", "--text", str(text), "--context", "32", "--json"]
    lines = run("quantize", model, str(out), *options, "--windows", "4").output.splitlines()
    events = [json.loads(line) for line in lines]
    (curve,) = (event for event in events if event["event"] == "curve")
    (chosen,) = (point for point in curve["points"] if point["chosen"])
    assert events[-1]["event"] == "done"
    assert out.stat().st_size == chosen["bytes"] == events[-1]["bytes"] <= 0.3 * 2**20
    assert chosen["kl_mean"] > 0 and chosen["kl_error"] > 0
    assert {event["event"] for event in events} == {"measured", "curve", "tensor", "done"}
    # It is of no mix that has a number; other programs then go by its tensors.
    assert "general.file_type" not in read_gguf(out).metadata
    stored = read_gguf(out).tensors
    assert curve["kinds"] == {name: stored[name].codec.name for name in curve["kinds"]}
