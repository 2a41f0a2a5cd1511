"""Models made by other people with other tools, opened, compared and converted."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.gguf.file import read_gguf
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.rope_rows import heads_to_half

NAMES = ("stories260K", "llama-2-tiny-random")


def model_path(shared_assets: Path, name: str) -> Path:
    return shared_assets / "models" / name / f"{name}.gguf"


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_headers_and_tensors_are_what_gguf_py_reads(shared_assets: Path, name: str) -> None:
    path = model_path(shared_assets, name)
    file, library = read_gguf(path), gguf.GGUFReader(path)
    for key, field in library.fields.items():
        if not key.startswith("GGUF."):
            got = file.metadata[key]
            assert (got.tolist() if isinstance(got, np.ndarray) else got) == field.contents()
    assert list(file.tensors) == [tensor.name for tensor in library.tensors]
    for tensor in library.tensors:
        values = np.asarray(tensor.data, np.float32)
        assert np.array_equal(file.tensors[tensor.name].to_f32(), values)


def test_stories260k(shared_assets: Path) -> None:
    """Its metadata is odd: ids of -1, no rope base, no pre, and a context that was not trained."""
    checkpoint = open_checkpoint(model_path(shared_assets, "stories260K"))
    assert dict(checkpoint.config) == {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 2048,
        "hidden_size": 64,
        "num_hidden_layers": 5,
        "intermediate_size": 172,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": 512,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    assert checkpoint.eos_token_ids == (2,)
    assert checkpoint.tokenizer.gguf["padding_token_id"] == 2**32 - 1
    assert checkpoint.chat_templates == {}
    assert len(checkpoint.tensors) == 3 + 5 * 9


def test_stories260k_holds_the_rows_its_training_code_saved(shared_assets: Path) -> None:
    """llama2.c's own checkpoint has Q and K interleaved as well, and nothing else moved."""
    checkpoint = open_checkpoint(model_path(shared_assets, "stories260K"))
    raw = np.fromfile(shared_assets / "models" / "stories260K" / "stories260K.bin", "<f4")
    dim, layers, vocab = 64, 5, 512
    at = 7 + vocab * dim
    expected = {"model.embed_tokens.weight": raw[7:at].reshape(vocab, dim)}
    for module, rows in (("input_layernorm", 0), ("self_attn.q_proj", 64),
                         ("self_attn.k_proj", 32), ("self_attn.v_proj", 32),
                         ("self_attn.o_proj", 64)):  # fmt: skip
        for layer in range(layers):
            size = max(1, rows) * dim
            values = raw[at : at + size]
            at += size
            name = f"model.layers.{layer}.{module}.weight"
            expected[name] = values.reshape(rows, dim) if rows else values
    for name, values in expected.items():
        assert np.array_equal(checkpoint.tensors[name].to_f32(), values), name
    assert checkpoint.conventions.rope_layout == "interleaved"


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_to_hugging_face_and_back_gives_the_same_bytes(
    shared_assets: Path, tmp_path: Path, name: str
) -> None:
    source = open_checkpoint(model_path(shared_assets, name))
    write_hf_folder(source, tmp_path / "hf")
    folder = open_checkpoint(tmp_path / "hf")
    config = source.config
    for key in ("q_proj", "k_proj"):
        heads = config["num_attention_heads" if key == "q_proj" else "num_key_value_heads"]
        tensor_name = f"model.layers.0.self_attn.{key}.weight"
        order = heads_to_half(heads, config["head_dim"])
        assert np.array_equal(
            folder.tensors[tensor_name].to_f32(), source.tensors[tensor_name].to_f32()[order]
        )
    write_gguf(folder, tmp_path / "m.gguf")
    back = open_checkpoint(tmp_path / "m.gguf")
    assert back.config == source.config | {"architectures": back.config["architectures"]}
    for tensor_name, tensor in source.tensors.items():
        assert back.tensors[tensor_name].codec is tensor.codec
        assert np.array_equal(back.tensors[tensor_name].data, tensor.data)


@pytest.mark.long
@pytest.mark.parametrize("name", ["deepseek-coder", "llama-spm"])
def test_vocabulary_files_are_read(shared_assets: Path, name: str) -> None:
    path = shared_assets / "tokenizers" / "ggml-vocab" / f"ggml-vocab-{name}.gguf"
    metadata = read_gguf(path).metadata
    tokens = gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"].contents()
    assert metadata["tokenizer.ggml.tokens"] == tokens
