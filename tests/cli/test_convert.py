"""`headrace convert` as it is typed: there, back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli
from headrace.errors import ConfigError
from headrace.text.tokenizer import load_tokenizer
from headrace.weights.open import open_checkpoint
from tests.tiny import write_tiny_gguf, write_tiny_hf


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["convert", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
@pytest.mark.parametrize("codec", ["BF16", "F32"])
def test_a_folder_that_comes_back_has_the_bits_it_had(
    family: str, codec: str, tmp_path: Path
) -> None:
    folder = write_tiny_hf(tmp_path, family, codec)  # type: ignore[arg-type]
    made = json.loads(run(folder, tmp_path / "m.gguf", "--json").output)
    assert made["bytes"] == (tmp_path / "m.gguf").stat().st_size
    run(tmp_path / "m.gguf", tmp_path / "back")
    before, after = open_checkpoint(folder), open_checkpoint(tmp_path / "back")
    assert after.tensors.keys() == before.tensors.keys()
    for name, tensor in before.tensors.items():
        assert np.array_equal(after.tensors[name].to_f32(), tensor.to_f32()), name
        if len(tensor.shape) > 1 and not name.endswith("mlp.gate.weight"):
            assert after.tensors[name].codec is tensor.codec
            assert np.array_equal(after.tensors[name].data, tensor.data), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "m.gguf", folder.name]


def test_the_tokenizer_of_a_file_goes_into_the_folder(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path, "llama", "Q8_0")
    run(file, tmp_path / "folder", "--type", "bf16")
    text = "What is <|im_end|> read, and what\n\n is kept: 1234 \u00e9\u00e8."
    for special in (True, False):
        ids = [
            load_tokenizer(opened.tokenizer, opened.eos_token_ids).encode(
                text, add_special_tokens=special, parse_special=special
            )
            for opened in (open_checkpoint(file), open_checkpoint(tmp_path / "folder"))
        ]
        assert ids[0] == ids[1]
    opened = open_checkpoint(tmp_path / "folder")
    assert {tensor.codec.name for tensor in opened.tensors.values()} == {"BF16"}


def test_nothing_is_replaced_unless_that_is_said(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path, "llama", "BF16")
    for out in (tmp_path / "m.gguf", tmp_path / "other"):
        run(folder, out)
        with pytest.raises(ConfigError, match="exists already; --force replaces it"):
            run(folder, out)
        before = open_checkpoint(out).path.stat().st_ino
        run(folder, out, "--force", "--type", "F32")
        assert open_checkpoint(out).path.stat().st_ino != before
        kinds = {tensor.codec.name for tensor in open_checkpoint(out).tensors.values()}
        assert kinds == {"F32"}
    with pytest.raises(ConfigError, match="is the source itself"):
        run(folder, folder, "--force")
    with pytest.raises(ConfigError, match="holds the source"):
        run(folder, tmp_path, "--force")
    with pytest.raises(ConfigError, match="a place in a folder that exists is required"):
        run(folder, tmp_path / "none" / "m.gguf")


def test_a_run_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.errors import CheckpointError
    from headrace.weights.tensors import source

    folder = write_tiny_hf(tmp_path, "llama", "BF16")

    def full(self: source.TensorSource, file: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(source.TensorSource, "write_to", full)
    for out in ("m.gguf", "other"):
        with pytest.raises(CheckpointError, match="cannot be written: No space left on device"):
            run(folder, tmp_path / out)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
