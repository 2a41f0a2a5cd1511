"""Conversion of files whose kinds can be read but not made."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from benchmarks.random_rows import random_rows
from headrace.weights.codecs import CODECS, get_codec
from headrace.weights.conversion.convert import convert_to_gguf, write_gguf, write_hf_folder
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.source import source_of_array, source_of_rows

from .builders import hf_arrays, hf_config, write_hf

HIDDEN, FFN, VOCAB = 256, 512, 64
MATRICES = {
    "token_embd": (VOCAB, HIDDEN), "output": (VOCAB, HIDDEN), "blk.0.attn_q": (HIDDEN, HIDDEN),
    "blk.0.attn_k": (HIDDEN, HIDDEN), "blk.0.attn_v": (HIDDEN, HIDDEN),
    "blk.0.attn_output": (HIDDEN, HIDDEN), "blk.0.ffn_gate": (FFN, HIDDEN),
    "blk.0.ffn_up": (FFN, HIDDEN), "blk.0.ffn_down": (HIDDEN, FFN),
}  # fmt: skip


def llama_of(path: Path, kind: str, file_type: int) -> Path:
    """A Llama of one layer whose matrices are random blocks of one kind."""
    rng = np.random.default_rng(0)
    codec = get_codec(kind)
    sources = [
        source_of_rows(random_rows(codec, rng, *shape, 0.1), shape, f"{name}.weight", codec)
        for name, shape in MATRICES.items()
    ]
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        sources.append(source_of_array(np.ones(HIDDEN, np.float32), f"{name}.weight"))
    metadata = {
        "general.architecture": "llama", "general.file_type": file_type,
        "llama.block_count": 1, "llama.context_length": 128, "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN, "llama.attention.head_count": 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "none",
    }  # fmt: skip
    write_gguf_file(path, metadata, sources)
    return path


@pytest.mark.parametrize("kind", [name for name in CODECS if name not in ("F32", "F16", "BF16")])
def test_every_kind_is_copied_byte_for_byte_and_decoded_for_safetensors(
    tmp_path: Path, kind: str
) -> None:
    first = open_checkpoint(llama_of(tmp_path / "a.gguf", kind, 14))
    result = write_gguf(first, tmp_path / "b.gguf")
    assert result.codecs == {kind: len(MATRICES), "F32": 3}
    second = read_gguf(tmp_path / "b.gguf")
    assert second.metadata["general.file_type"] == 14
    for name, tensor in read_gguf(tmp_path / "a.gguf").tensors.items():
        assert np.array_equal(second.tensors[name].data, tensor.data)
    assert write_hf_folder(first, tmp_path / "hf").codecs == {"F32": len(MATRICES) + 3}
    name = "model.layers.0.mlp.down_proj.weight"
    folder = open_checkpoint(tmp_path / "hf")
    assert np.array_equal(folder.tensors[name].to_f32(), first.tensors[name].to_f32())


def test_file_types_are_llama_cpps(tmp_path: Path) -> None:
    from headrace.weights.gguf.values import FILE_TYPES

    assert set(FILE_TYPES) == set(CODECS)
    assert FILE_TYPES["Q2_0"] == 41 and 41 not in set(gguf.LlamaFileType)  # llama.h alone has it
    for name, number in FILE_TYPES.items():
        if name == "Q2_0":
            continue
        assert name.split("_M")[0] in gguf.LlamaFileType(number).name
    folder = write_hf(tmp_path / "hf", hf_arrays(), hf_config())
    for name in ("Q4_0", "Q5_1"):
        convert_to_gguf(folder, tmp_path / "m.gguf", name)
        assert read_gguf(tmp_path / "m.gguf").metadata["general.file_type"] == FILE_TYPES[name]


@pytest.mark.parametrize("kind", ["Q1_0", "Q2_0", "NVFP4"])
def test_the_kinds_of_few_bits_are_made(tmp_path: Path, kind: str) -> None:
    values = np.random.default_rng(3).standard_normal((4, 256), np.float32)
    stored = get_codec(kind).encode(values)
    source = source_of_rows(stored, values.shape, "a.weight", get_codec(kind))
    write_gguf_file(tmp_path / "m.gguf", {"general.architecture": "llama"}, [source])
    read = read_gguf(tmp_path / "m.gguf").tensors["a.weight"]
    assert read.codec is get_codec(kind)
    assert np.array_equal(read.data, stored)
