"""transformers reads both containers by its own code: it gets the same weights of our files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.weights.conversion.convert import convert_to_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint

from .builders import byte_tokenizer, hf_arrays, hf_config, write_hf

pytestmark = pytest.mark.torch
pytest.importorskip("torch", reason="transformers needs torch to read models")
transformers = pytest.importorskip("transformers", reason="compares with transformers")


def state_of(folder: Path) -> dict[str, np.ndarray]:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype="float32"
    )
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def gguf_state_of(path: Path, config: dict[str, Any]) -> tuple[dict[str, np.ndarray], Any]:
    """Weights and config by transformers' GGUF reader (from_pretrained itself needs accelerate)."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    shape = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(shape)
    loaded = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    state = {name: np.asarray(tensor) for name, tensor in loaded["tensors"].items()}
    return state, loaded["config"]


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_a_gguf_file_we_wrote(tmp_path: Path, arch: str) -> None:
    arrays = hf_arrays(arch)
    folder = write_hf(tmp_path / "in", arrays, hf_config(arch), byte_tokenizer())
    convert_to_gguf(folder, tmp_path / "m.gguf", "F32")
    state, config = gguf_state_of(tmp_path / "m.gguf", hf_config(arch))
    for key in ("hidden_size", "num_key_value_heads", "rms_norm_eps"):
        assert config[key] == pytest.approx(hf_config(arch)[key])
    assert set(state) == set(arrays)
    for name, values in arrays.items():
        assert np.array_equal(state[name], values), name


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_a_folder_we_wrote_of_a_gguf_file(tmp_path: Path, arch: str) -> None:
    arrays = hf_arrays(arch)
    folder = write_hf(tmp_path / "in", arrays, hf_config(arch), byte_tokenizer())
    convert_to_gguf(folder, tmp_path / "m.gguf", None)
    tokenizer = json.dumps(byte_tokenizer())
    write_hf_folder(
        open_checkpoint(tmp_path / "m.gguf"), tmp_path / "out", tokenizer_json=tokenizer
    )
    state = state_of(tmp_path / "out")
    assert set(state) == set(arrays)
    for name, values in arrays.items():
        assert np.array_equal(state[name], values), name
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    assert loaded.eos_token == "<|turn|>" and loaded.encode("the")
