"""The export: what Hugging Face, GGUF readers and the card say of a checkpoint is what is in it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
SHAPE = {
    "vocab_size": 290,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 64,
}
PROGRESS = {
    "step": 12,
    "tokens": 123_456,
    "counted_s": 600.0,
    "epoch": 3,
    "position": 8,
    "heldout_loss": 2.3456,
    "heldout_bits_per_byte": 0.9876,
}
SETTINGS = {
    "minutes": 10.0,
    "tokens": None,
    "sequences": 16,
    "length": 512,
    "long_length": 1024,
    "long_from": 0.7,
    "learning_rate": 0.003,
    "weight_decay": 0.3,
    "bfloat16": True,
    "compile": False,
    "seed": 5,
}


@pytest.fixture
def tools() -> Iterator[dict[str, ModuleType]]:
    """The trainer's modules; `tools` belongs to the repository, not to the installed package."""
    sys.path.insert(0, str(ROOT))
    names = ("config", "corpus", "tokenizer", "export")
    yield {name: importlib.import_module(f"tools.train.{name}") for name in names}
    sys.path.remove(str(ROOT))


def random_weights(config: Any) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    d, f = config.hidden_size, config.intermediate_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, d),
        "model.norm.weight": (d,),
    }
    for layer in range(config.num_hidden_layers):
        for name, shape in (
            ("input_layernorm", (d,)),
            ("self_attn.q_proj", (q, d)),
            ("self_attn.k_proj", (kv, d)),
            ("self_attn.v_proj", (kv, d)),
            ("self_attn.o_proj", (d, q)),
            ("post_attention_layernorm", (d,)),
            ("mlp.gate_proj", (f, d)),
            ("mlp.up_proj", (f, d)),
            ("mlp.down_proj", (d, f)),
        ):
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return {
        name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }


@pytest.fixture
def exported(
    tools: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, dict[str, np.ndarray]]:
    """A folder with a run, its corpus and tokenizer, exported by the command; and its weights."""
    library = tmp_path / "library"
    library.mkdir()
    for i in range(60):
        (library / f"m{i}.py").write_text(f"def function_{i}(value):\n    return value * {i}\n" * 3)
    tools["corpus"].write_corpus(library, tmp_path)
    documents = tools["corpus"].read_documents(tmp_path, "train")
    tokenizer = tools["tokenizer"].train_tokenizer(documents, SHAPE["vocab_size"])
    tools["tokenizer"].write_tokenizer(tokenizer, tmp_path)
    config = tools["config"].ModelConfig(**SHAPE)
    weights = random_weights(config)
    moments = {f"adamw.exp_avg.{name}": weight for name, weight in weights.items()}
    note = {"progress": PROGRESS, "settings": SETTINGS, "model": asdict(config)}
    metadata = {tools["config"].NOTE_KEY: json.dumps(note)}
    save_file(weights | moments, tmp_path / "checkpoint.safetensors", metadata=metadata)
    arguments = {
        "run": tmp_path,
        "corpus": tmp_path,
        "tokenizer": tmp_path,
        "hugging-face": tmp_path / "hf",
        "gguf": tmp_path / "model.gguf",
        "card": tmp_path / "CARD.md",
        "machine": "a quiet one",
    }
    command = [word for key, value in arguments.items() for word in (f"--{key}", str(value))]
    monkeypatch.setattr(sys, "argv", ["export", *command])
    tools["export"].main()
    return tmp_path, weights


def test_hugging_face_folder_is_the_model_alone(
    exported: tuple[Path, dict[str, np.ndarray]],
) -> None:
    folder, weights = exported
    written = load_file(folder / "hf" / "model.safetensors")
    assert written.keys() == weights.keys()
    for name, weight in weights.items():
        np.testing.assert_array_equal(written[name], weight)
    config = json.loads((folder / "hf" / "config.json").read_text())
    assert config["tie_word_embeddings"] is True
    assert {key: config[key] for key in SHAPE} == SHAPE


def test_gguf_holds_the_same_model(
    exported: tuple[Path, dict[str, np.ndarray]], tools: dict[str, ModuleType]
) -> None:
    gguf = pytest.importorskip("gguf", reason="the comparison needs the gguf package")
    folder, weights = exported
    reader = gguf.GGUFReader(folder / "model.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "llama"
    assert fields["general.name"] == "headrace-code-6m"
    assert fields["general.license"] == "PSF-2.0"
    assert fields["tokenizer.ggml.model"] == "gpt2"
    assert fields["tokenizer.ggml.pre"] == "gpt-2"
    assert fields["tokenizer.ggml.add_bos_token"] is False
    assert fields["tokenizer.ggml.bos_token_id"] == fields["tokenizer.ggml.eos_token_id"] == 0
    assert fields["tokenizer.chat_template"] == tools["tokenizer"].CHAT_TEMPLATE
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    assert fields["tokenizer.ggml.tokens"] == sorted(vocabulary, key=vocabulary.__getitem__)
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    assert fields["tokenizer.ggml.merges"] == merges
    stored = {tensor.name: tensor for tensor in reader.tensors}
    assert len(stored) == len(weights)
    expected = {"token_embd.weight": weights["model.embed_tokens.weight"]}
    for layer in range(SHAPE["num_hidden_layers"]):
        for gguf_name, name, n_heads in (("attn_q", "q_proj", 4), ("attn_k", "k_proj", 2)):
            weight = weights[f"model.layers.{layer}.self_attn.{name}.weight"]
            pairs = weight.reshape(n_heads, 2, SHAPE["head_dim"] // 2, -1)
            expected[f"blk.{layer}.{gguf_name}.weight"] = pairs.swapaxes(1, 2).reshape(weight.shape)
        weight = weights[f"model.layers.{layer}.mlp.down_proj.weight"]
        expected[f"blk.{layer}.ffn_down.weight"] = weight
    for name, weight in expected.items():
        tensor = stored[name]
        assert tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        # Half a step of 1/127 of the block's largest, and the scale's own rounding to float16.
        largest = np.abs(weight).reshape(-1, 32).max(axis=1, keepdims=True)
        error = np.abs(values - weight).reshape(-1, 32)
        assert (error <= largest * (0.5 / 127 + 2.0**-10)).all(), name
    norm = stored["output_norm.weight"]
    assert norm.tensor_type == gguf.GGMLQuantizationType.F32
    np.testing.assert_array_equal(norm.data, weights["model.norm.weight"])


def test_card_states_the_run_s_own_figures(
    exported: tuple[Path, dict[str, np.ndarray]],
) -> None:
    folder, weights = exported
    card = (folder / "CARD.md").read_text()
    n_parameters = sum(weight.size for weight in weights.values())
    n_bytes = (folder / "model.gguf").stat().st_size
    for figure in (
        f"{n_parameters:,}",
        f"{n_bytes:,} bytes",
        "123,456",
        "2.3456 nats",
        "| 0.9876 |",
        "10 minutes",
        "PSF-2.0",
        "a quiet one",
        "--minutes 10 ",
        "--no-compile",
    ):
        assert figure in card
    assert str(folder) not in card


def test_a_file_of_something_else_is_refused(tools: dict[str, ModuleType], tmp_path: Path) -> None:
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="was not written by"):
        tools["config"].read_note(tmp_path / "other.safetensors")
