"""Files of a model folder that are there but are not what they should be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace.errors import CheckpointError
from headrace.text import load_tokenizer
from headrace.weights.files import json_file
from headrace.weights.files.json_file import read_json_object, read_text
from headrace.weights.files.small_file import read_small_file
from headrace.weights.files.user_path import user_path
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
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
    monkeypatch.setattr(os, "read", lambda *_: pytest.fail("it is read"))
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


@pytest.mark.parametrize("name", [*OPTIONAL[:3], "config.json", "tokenizer.json"])
def test_every_json_file_is_a_regular_one_of_bounded_size(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_hf(tmp_path)

    def read() -> None:
        tokenizer = open_checkpoint(folder).tokenizer
        assert tokenizer.num_tokens
        load_tokenizer(tokenizer)

    read()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match=rf"{name}: not a regular file"):
        read()
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(CheckpointError, match=rf"{name}: not a regular file"):
        read()
    (folder / name).unlink()
    with (folder / name).open("wb") as out:
        out.truncate(json_file.MAX_JSON_BYTES + 1)
    with pytest.raises(CheckpointError, match=rf"{name}: \d+ bytes; the limit is \d+"):
        read()


def test_a_file_that_grows_while_it_is_read_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(b"x" * 10)
    assert read_small_file(path, 10) == b"x" * 10
    with pytest.raises(CheckpointError, match="10 bytes; the limit is 9"):
        read_small_file(path, 9)
    # Files of /proc claim to be empty.
    assert read_small_file(Path("/proc/self/status"), 1 << 20).startswith(b"Name:")
    with pytest.raises(CheckpointError, match="more than 5 bytes"):
        read_small_file(Path("/proc/self/status"), 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"model_type": "llama", "model_type": "qwen2"}', "'model_type' appears twice"),
        (b'{"a": {"b": 1, "b": 1}}', "'b' appears twice"),
        (b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper than 64"),
        (b'{"a": ' + b"[" * 200_000, "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        ('{"a": 1}'.encode("utf-16"), "not valid JSON"),
        (b"[" + b"[]," * 9 + b"[]]", r"about \d+ values; the limit is 8"),
    ],
)
def test_json_that_is_not_taken(
    tmp_path: Path, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "values" in message:
        monkeypatch.setattr(json_file, "MAX_JSON_VALUES", 8)
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_json_object(path)
    assert str(path) in str(caught.value)


def test_json_with_a_byte_order_mark_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json_object(path) == {"a": 1}


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
