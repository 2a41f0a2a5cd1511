"""Files of a model folder that are there but are not what they should be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace.errors import CheckpointError
from headrace.weights.json_file import read_json_object, read_text
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors_file import read_safetensors
from headrace.weights.small_file import read_small_file
from headrace.weights.user_path import user_path
from tests.tiny import write_tiny_hf

OPTIONAL = (
    "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja",
)  # fmt: skip


def test_a_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tiny_hf(tmp_path)
    (folder / "generation_config.json").unlink()
    os.mkfifo(folder / "generation_config.json")
    # Where the check is missing, this fails rather than waits.
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} is read"))
    for read in (read_json_object, read_text):
        with pytest.raises(CheckpointError, match="not a regular file"):
            read(folder / "generation_config.json")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_small_file(Path("/dev/zero"), 10)


@pytest.mark.parametrize("name", [*OPTIONAL, "config.json", "model.safetensors"])
def test_a_link_to_nothing_is_not_an_absent_file(tmp_path: Path, name: str) -> None:
    folder = write_tiny_hf(tmp_path)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=rf"{name}: .*[Nn]o such file"):
        open_checkpoint(folder)


def test_a_tokenizer_that_is_gone_is_still_the_one_meant(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to(tmp_path / "gone")
    assert open_checkpoint(folder).tokenizer.json_path == folder / "tokenizer.json"


def test_half_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "\ud800"}))
    with pytest.raises(CheckpointError, match=r"config\.json: not valid JSON: .*surrogates"):
        open_checkpoint(folder)
    (folder / "config.json").write_text(json.dumps(config | {"_name_or_path": "\U0001f600"}))
    assert open_checkpoint(folder).config["_name_or_path"] == "\U0001f600"
    header = b'{"\\udc00":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    path = tmp_path / "s.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match=r"the header is not valid JSON: .*surrogates"):
        read_safetensors(path)


def test_paths_no_system_takes_are_errors_for_people() -> None:
    with pytest.raises(CheckpointError, match="cannot be read: File name too long"):
        open_checkpoint("x" * 5000)
    with pytest.raises(CheckpointError, match="neither a regular file nor a folder"):
        open_checkpoint("/dev/null")
    with pytest.raises(CheckpointError, match="~nobody-is-called-so/m: no such file or folder"):
        open_checkpoint("~nobody-is-called-so/m")
    assert user_path("~") == Path.home()
