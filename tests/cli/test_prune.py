"""`headrace prune` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli
from headrace.errors import CheckpointError, ConfigError
from headrace.eval.prune import KEY
from headrace.weights.open import open_checkpoint
from tests.tiny import write_tiny_gguf, write_tiny_hf

TEXT = "".join(f"line {number}: what is read here\n" for number in range(20))


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["prune", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def text(tmp_path: Path) -> Path:
    place = tmp_path / "notes.txt"
    place.write_text(TEXT)
    return place


def test_a_file_and_a_folder_come_out_with_what_was_measured(tmp_path: Path, text: Path) -> None:
    file = write_tiny_gguf(tmp_path, "qwen3_moe", "BF16")
    before = open_checkpoint(file).config["num_experts"]
    more = ("--text", text, "--experts", before - 1, "--context", 16, "--windows", 3)
    for out in (tmp_path / "less.gguf", tmp_path / "less"):
        report = json.loads(run(file, out, *more, "--json").output)
        opened = open_checkpoint(out)
        assert opened.config["num_experts"] == before - 1
        assert report["tokens"] == 3 * 15
        assert {len(layer["kept"]) for layer in report["experts"]} == {before - 1}
        assert {tensor.codec.name for tensor in opened.tensors.values()} == {"F32", "BF16"}
    stated = json.loads(open_checkpoint(tmp_path / "less.gguf").metadata[KEY])
    assert [layer["kept"] for layer in stated["experts"]] == [
        layer["kept"] for layer in report["experts"]
    ]
    raw = (tmp_path / "less" / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert json.loads(header["__metadata__"][KEY]) == stated


def test_nothing_is_written_or_replaced_unless_that_is_said(tmp_path: Path, text: Path) -> None:
    folder = write_tiny_hf(tmp_path, "llama", "BF16")
    out = tmp_path / "less.gguf"
    more = (folder, out, "--text", text, "--layers", 1, "--context", 16)
    assert "goes: 1 - cos is" in run(*more, "--dry-run").output
    assert not out.exists()
    run(*more)
    assert open_checkpoint(out).config["num_hidden_layers"] == 1
    with pytest.raises(ConfigError, match="exists already; --force replaces it"):
        run(*more)
    run(*more, "--force")


def test_a_run_that_fails_leaves_nothing(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.weights.tensors import source

    folder = write_tiny_hf(tmp_path, "llama", "BF16")

    def full(self: source.TensorSource, file: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(source.TensorSource, "write_to", full)
    before = sorted(path.name for path in tmp_path.iterdir())
    for out in ("m.gguf", "other"):
        with pytest.raises(CheckpointError, match="cannot be written: No space left on device"):
            run(folder, tmp_path / out, "--text", text, "--layers", 1, "--context", 16)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
