"""Split GGUF files: any piece opens all; what is missing or mixed up is named."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.split import read_gguf_model
from headrace.weights.gguf.values import Typed, ValueType
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.source import source_of_tensor

from .builders import hf_arrays, write_gguf_with_library

N_PIECES = 3


def piece(folder: Path, number: int, count: int = N_PIECES, stem: str = "m") -> Path:
    return folder / f"{stem}-{number:05}-of-{count:05}.gguf"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A model in one file, in a folder of its own."""
    folder = tmp_path / "whole"
    folder.mkdir()
    return write_gguf_with_library(folder / "m.gguf", hf_arrays())


def split(
    whole: Path, folder: Path, changes: Mapping[int, Mapping[str, Any]] | None = None
) -> Path:
    """The pieces llama-gguf-split makes; `changes` of metadata by number, None removing a key."""
    file = read_gguf(whole)
    names = list(file.tensors)
    folder.mkdir(exist_ok=True)
    for index in range(N_PIECES):
        metadata: dict[str, Any] = {} if index else dict.fromkeys(file.metadata)
        metadata = {key: file.metadata.typed(key) for key in metadata}
        metadata |= {
            "split.no": Typed(ValueType.UINT16, index),
            "split.count": Typed(ValueType.UINT16, N_PIECES),
            "split.tensors.count": Typed(ValueType.INT32, len(names)),
        }
        metadata |= (changes or {}).get(index + 1, {})
        metadata = {key: value for key, value in metadata.items() if value is not None}
        sources = [source_of_tensor(file.tensors[n], n, file.tensors[n].codec)
                   for n in names[index::N_PIECES]]  # fmt: skip
        write_gguf_file(piece(folder, index + 1), metadata, sources)
    return folder


@pytest.mark.parametrize("number", range(1, N_PIECES + 1))
def test_any_piece_opens_the_whole(whole: Path, tmp_path: Path, number: int) -> None:
    expected = open_checkpoint(whole)
    folder = split(whole, tmp_path / "split")
    got = open_checkpoint(piece(folder, number))
    assert got.path == piece(folder, 1)
    assert got.config == expected.config
    assert got.tokenizer.gguf["tokens"] == expected.tokenizer.gguf["tokens"]
    assert set(got.metadata) == set(expected.metadata)
    assert set(got.tensors) == set(expected.tensors)
    for name, tensor in expected.tensors.items():
        assert np.array_equal(got.tensors[name].data, tensor.data)


def test_a_folder_of_pieces_is_one_model(whole: Path, tmp_path: Path) -> None:
    folder = split(whole, tmp_path / "split")
    assert open_checkpoint(folder).path == piece(folder, 1)
    (folder / "mmproj-m-F16.gguf").write_bytes(b"GGUF")
    assert open_checkpoint(folder).path == piece(folder, 1)
    shutil.copy(whole, folder / "other.gguf")
    with pytest.raises(
        CheckpointError, match=r"holds 2 GGUF models \(m-00001-of-00003.gguf, other.g"
    ):
        open_checkpoint(folder)


def test_pieces_that_gguf_py_writes(tmp_path: Path) -> None:
    arrays = hf_arrays()
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=8)
    for name, values in arrays.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.glob("*.gguf"))
    assert len(paths) == -(-len(arrays) // 8) > 1
    for path in paths:
        file = read_gguf_model(path)
        assert file.path == paths[0]
        assert set(file.tensors) == set(arrays)
        assert not [key for key in file.metadata if key.startswith("split.")]
        for name, values in arrays.items():
            assert np.array_equal(file.tensors[name].to_f32(), values)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({2: {"split.no": 0}}, r"m-00002-of-00003.gguf: split.no is 0; its name requires 1"),
        ({2: {"split.no": None}}, r"m-00002-of-00003.gguf: split.no is None; its name"),
        ({3: {"split.count": 2}}, r"m-00003-of-00003.gguf: split.count is 2; its name requires 3"),
        ({3: {"split.count": None}}, r"m-00003-of-00003.gguf: split.count is None"),
        ({1: {"split.tensors.count": 99}}, "split.tensors.count is 99, but the 3 pieces hold 21"),
        ({1: {"split.count": 4}}, "is one of 4 pieces .* NAME-00001-of-00004.gguf is required"),
        ({1: {"split.count": "3"}}, "split.count is '3'; an integer below 100000"),
        ({1: {"split.count": 1 << 40}}, "split.count is 1099511627776; an integer below 100000"),
        ({1: {"split.count": [3]}}, "'split.count' is an array"),
        ({1: {"split.count": -1}}, "split.count is -1; an integer"),
    ],
)
def test_pieces_that_do_not_belong_together(
    whole: Path, tmp_path: Path, changes: dict[int, dict[str, Any]], pattern: str
) -> None:
    folder = split(whole, tmp_path / "split", changes)
    with pytest.raises(CheckpointError, match=pattern):
        open_checkpoint(piece(folder, 1))


def test_missing_pieces_are_named(whole: Path, tmp_path: Path) -> None:
    folder = split(whole, tmp_path / "split")
    piece(folder, 2).unlink()
    pattern = r"1 of 3 pieces are missing beside it \(m-00002-of-00003.gguf\); fetch them into"
    for number in (1, 3):
        with pytest.raises(CheckpointError, match=pattern):
            open_checkpoint(piece(folder, number))
    with pytest.raises(CheckpointError, match="no such file"):
        open_checkpoint(piece(folder, 2))


def test_renamed_pieces_are_refused_with_the_remedy(whole: Path, tmp_path: Path) -> None:
    folder = split(whole, tmp_path / "split")
    renamed = piece(folder, 1).rename(folder / "model.gguf")
    with pytest.raises(CheckpointError, match=r"model.gguf: is one of 3 pieces .* give the pieces"):
        open_checkpoint(renamed)


def test_a_tensor_in_two_pieces_is_refused(whole: Path, tmp_path: Path) -> None:
    folder = split(whole, tmp_path / "split")
    names = list(read_gguf(whole).tensors)
    metadata = {"split.no": 2, "split.count": 3, "split.tensors.count": len(names)}
    first = read_gguf(whole).tensors[names[0]]
    write_gguf_file(piece(folder, 3), metadata, [source_of_tensor(first, names[0], first.codec)])
    with pytest.raises(CheckpointError, match=f"00003.gguf: tensor {names[0]!r} is in an earlier"):
        open_checkpoint(piece(folder, 1))


def test_a_damaged_piece_is_named(whole: Path, tmp_path: Path) -> None:
    folder = split(whole, tmp_path / "split")
    raw = piece(folder, 2).read_bytes()
    piece(folder, 2).write_bytes(raw[:-4096])
    with pytest.raises(CheckpointError, match=r"m-00002-of-00003.gguf: tensor .* was cut short"):
        open_checkpoint(piece(folder, 1))


def test_a_whole_file_with_the_name_of_a_piece_is_whole(whole: Path, tmp_path: Path) -> None:
    path = shutil.copy(whole, piece(tmp_path, 1, 2))
    assert len(open_checkpoint(path).tensors) == 21


@pytest.mark.parametrize("name", ["mmproj-m-F16.gguf", "mtp-m.gguf", "MMPROJ.gguf", "imatrix.gguf"])
def test_sidecars_are_refused_by_name(whole: Path, name: str) -> None:
    path = shutil.copy(whole, whole.parent / name)
    with pytest.raises(UnsupportedModelError, match=f"{name}: a file named .* not a model; name"):
        open_checkpoint(path)
    assert open_checkpoint(whole.parent).path == whole
