"""Hugging Face folders: files, templates, ends of turn; and what `open_checkpoint` opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headrace.errors import CheckpointError
from headrace.weights.codecs import get_codec
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import source_of_array

from .builders import (
    byte_tokenizer,
    hf_arrays,
    hf_config,
    write_gguf_with_library,
    write_hf,
    write_json,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_reads_what_the_library_writes(tmp_path: Path, dtype: Any) -> None:
    arrays = {name: values.astype(dtype) for name, values in hf_arrays().items()}
    folder = write_hf(tmp_path, arrays, hf_config(), byte_tokenizer())
    checkpoint = open_checkpoint(folder)
    assert checkpoint.format == "safetensors"
    assert checkpoint.conventions.rope_layout == "half"
    assert checkpoint.config == hf_config()
    assert set(checkpoint.tensors) == set(arrays)
    for name, values in arrays.items():
        tensor = checkpoint.tensors[name]
        assert tensor.shape == values.shape
        assert tensor.codec.safetensors_dtype == {2: tensor.codec.name, 4: "F32"}[values.itemsize]
        assert np.array_equal(tensor.to_f32(), values.astype(np.float32))
        assert not tensor.data.flags.writeable
    assert checkpoint.metadata == {"format": "pt"}


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = {"F16": (3, 5), "BF16": (7,), "F32": (2, 3, 4), "scalar": ()}
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in values.items()}
    codecs = {name: get_codec(name if name != "scalar" else "F32") for name in arrays}
    path = tmp_path / "m.safetensors"
    sources = [source_of_array(array, name, codecs[name]) for name, array in arrays.items()]
    size = write_safetensors_file(path, sources, {"a": "ä"})
    assert size == path.stat().st_size
    loaded = load_file(path)
    ours = read_safetensors(path)
    assert ours.metadata == {"format": "pt", "a": "ä"}
    for name, array in arrays.items():
        expected = codecs[name].decode(codecs[name].encode(np.atleast_1d(array)))
        assert np.array_equal(loaded[name].astype(np.float32), expected.reshape(array.shape))
        assert np.array_equal(ours.tensors[name].to_f32(), expected.reshape(array.shape))
        start = ours.tensors[name].data.ctypes.data
        assert start % codecs[name].block_bytes == 0


def test_what_safetensors_cannot_hold_is_refused(tmp_path: Path) -> None:
    q8_0 = source_of_array(np.ones((1, 32), np.float32), "t", get_codec("Q8_0"))
    with pytest.raises(CheckpointError, match="'t' is Q8_0, which safetensors cannot hold"):
        write_safetensors_file(tmp_path / "m.safetensors", [q8_0])
    one = source_of_array(np.ones(2, np.float32), "t")
    with pytest.raises(CheckpointError, match="two tensors are called 't'"):
        write_safetensors_file(tmp_path / "m.safetensors", [one, one])
    assert not list(tmp_path.iterdir())


def test_an_empty_tensor_is_read(tmp_path: Path) -> None:
    save_file({"e": np.zeros((0, 5), np.float32)}, tmp_path / "m.safetensors")
    assert read_safetensors(tmp_path / "m.safetensors").tensors["e"].to_f32().shape == (0, 5)


def sharded(folder: Path, mapping: dict[str, str]) -> Path:
    arrays = hf_arrays()
    names = sorted(arrays)
    half = len(names) // 2
    save_file({n: arrays[n] for n in names[:half]}, folder / "a.safetensors")
    save_file({n: arrays[n] for n in names[half:]}, folder / "b.safetensors")
    weight_map = dict.fromkeys(names[:half], "a.safetensors")
    weight_map |= dict.fromkeys(names[half:], "b.safetensors")
    write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map | mapping})
    write_json(folder / "config.json", hf_config())
    return folder


def test_sharded_weights(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(sharded(tmp_path, {}))
    arrays = hf_arrays()
    assert set(checkpoint.tensors) == set(arrays)
    for name, values in arrays.items():
        assert np.array_equal(checkpoint.tensors[name].to_f32(), values)


@pytest.mark.parametrize(
    ("mapping", "pattern"),
    [
        ({"x": "a.safetensors"}, "tensor 'x' is missing, which .* says is there"),
        ({"x": "c.safetensors"}, r"1 of 3 files .* lists are missing \(c.safetensors\); fetch"),
        ({"x": "../c.safetensors"}, "a plain file name is required"),
        ({"x": "/etc/passwd"}, "a plain file name is required"),
        ({"x": ".."}, "a plain file name is required"),
        ({"x": 5}, "a plain file name is required"),
    ],
)
def test_bad_indexes(tmp_path: Path, mapping: dict[str, Any], pattern: str) -> None:
    with pytest.raises(CheckpointError, match=pattern):
        open_checkpoint(sharded(tmp_path, mapping))


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    sharded(tmp_path, {"x": "c.safetensors"})
    save_file({"model.norm.weight": np.ones(4, np.float32)}, tmp_path / "c.safetensors")
    with pytest.raises(CheckpointError, match=r"'model.norm.weight' is in another file as well"):
        open_checkpoint(tmp_path)


def test_missing_weights_say_what_is_needed(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", hf_config())
    with pytest.raises(CheckpointError, match=r"model.safetensors or .* is required"):
        open_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a pickle and is not read"):
        open_checkpoint(tmp_path)
    for name in ("a", "b"):
        save_file({"model.x": np.ones(4, np.float32)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(CheckpointError, match=r"several safetensors files \(a.safetensors"):
        open_checkpoint(tmp_path)
    (tmp_path / "b.safetensors").unlink()
    assert set(open_checkpoint(tmp_path).tensors) == {"model.x"}


def test_an_unknown_dtype_is_named(tmp_path: Path) -> None:
    write_hf(tmp_path, {"position_ids": np.arange(4)}, hf_config())
    with pytest.raises(CheckpointError, match="'position_ids': dtype 'I64' is not supported"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("in_config", "in_generation", "expected"),
    [
        (3, None, (3,)),
        ([5, 3], 4, (3, 4, 5)),
        (None, [9, 9], (9,)),
        (3, [3], (3,)),
        (-1, 10**6, (0,)),
        (None, None, (0,)),
    ],
)
def test_ends_are_the_union_and_else_the_tokenizer_s(
    tmp_path: Path, in_config: Any, in_generation: Any, expected: tuple[int, ...]
) -> None:
    config = hf_config(eos_token_id=in_config)
    folder = write_hf(tmp_path, {"a": np.ones(4, np.float32)}, config, byte_tokenizer())
    write_json(folder / "generation_config.json", {"eos_token_id": in_generation, "top_k": 5})
    checkpoint = open_checkpoint(folder)
    assert checkpoint.eos_token_ids == expected
    assert checkpoint.generation_config["top_k"] == 5


def test_an_end_that_is_no_id_is_refused(tmp_path: Path) -> None:
    write_hf(tmp_path, {"a": np.ones(4, np.float32)}, hf_config(eos_token_id="</s>"))
    with pytest.raises(CheckpointError, match="eos_token_id is '</s>'"):
        open_checkpoint(tmp_path)


def test_special_tokens_from_the_map_file_and_as_objects(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    config = hf_config(eos_token_id=None)
    folder = write_hf(tmp_path, {"a": np.ones(4, np.float32)}, config, tokenizer)
    write_json(folder / "tokenizer_config.json", {"bos_token": "<|turn|>"})
    write_json(folder / "special_tokens_map.json", {"eos_token": {"content": "<|end|>"}})
    checkpoint = open_checkpoint(folder)
    assert checkpoint.eos_token_ids == (0,)
    assert checkpoint.tokenizer.config["bos_token"] == "<|turn|>"
    assert checkpoint.tokenizer.json_path == folder / "tokenizer.json"


def test_chat_templates_from_every_place(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, {"a": np.ones(4, np.float32)}, hf_config())
    assert open_checkpoint(folder).chat_templates == {}
    write_json(folder / "tokenizer_config.json", {"chat_template": "one", "bos_token": "x"})
    checkpoint = open_checkpoint(folder)
    assert checkpoint.chat_templates == {"default": "one"}
    assert checkpoint.tokenizer.kind == "none"
    assert checkpoint.tokenizer.config == {"bos_token": "x"}
    named = [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]
    write_json(folder / "tokenizer_config.json", {"chat_template": named})
    assert open_checkpoint(folder).chat_templates == {"default": "d", "rag": "r"}
    for name in ("chat_templates", "additional_chat_templates"):
        (folder / name).mkdir()
        (folder / name / f"{name}.jinja").write_text(name)
    (folder / "chat_template.jinja").write_text("file")
    assert open_checkpoint(folder).chat_templates == {
        "default": "file",
        "rag": "r",
        "chat_templates": "chat_templates",
        "additional_chat_templates": "additional_chat_templates",
    }
    for bad in (5, [{"name": "x"}], ["x"]):
        write_json(folder / "tokenizer_config.json", {"chat_template": bad})
        with pytest.raises(CheckpointError, match="chat_template"):
            open_checkpoint(folder)


def test_open_checkpoint_finds_the_container(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file or folder"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"neither config.json nor a .gguf file"):
        open_checkpoint(tmp_path)
    path = write_gguf_with_library(tmp_path / "m.gguf", hf_arrays())
    assert open_checkpoint(path).format == "gguf"
    assert open_checkpoint(str(tmp_path)).format == "gguf"
    # Many repositories keep the original's config.json beside their GGUF files.
    write_json(tmp_path / "config.json", hf_config())
    assert open_checkpoint(tmp_path).format == "gguf"
    (tmp_path / "n.gguf").write_bytes(path.read_bytes())
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"holds 2 GGUF models \(m.gguf, n.gguf\)"):
        open_checkpoint(tmp_path)
    write_hf(tmp_path, hf_arrays(), hf_config())
    assert open_checkpoint(tmp_path).format == "safetensors"
    with pytest.raises(CheckpointError, match="name the folder"):
        open_checkpoint(tmp_path / "model.safetensors")
    (tmp_path / "x.txt").write_text(json.dumps({}))
    with pytest.raises(CheckpointError, match="the magic needs 4 bytes but the file has 2 left"):
        open_checkpoint(tmp_path / "x.txt")
