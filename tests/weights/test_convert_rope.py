"""Conversion of rope: what config.json says comes out of a GGUF file again, or is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.weights.conversion.convert import convert_to_gguf, write_hf_folder
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import RopeConfig
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.rope_rows import llama3_factors

from .builders import HEAD_DIM, byte_tokenizer, hf_arrays, hf_config, write_hf

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_llama3_rope_becomes_factors_and_comes_back(tmp_path: Path) -> None:
    config = hf_config(rope_scaling=LLAMA3)
    folder = write_hf(tmp_path / "in", hf_arrays(), config, byte_tokenizer())
    convert_to_gguf(folder, tmp_path / "m.gguf", None)
    middle = open_checkpoint(tmp_path / "m.gguf")
    factors = middle.tensors["rope_freqs.weight"].to_f32()
    assert np.array_equal(factors, llama3_factors(HEAD_DIM, 500000.0, LLAMA3))
    assert "rope_scaling" not in middle.config
    write_hf_folder(middle, tmp_path / "out")
    back = open_checkpoint(tmp_path / "out")
    assert back.config["rope_scaling"] == LLAMA3
    assert "rope_freqs.weight" not in back.tensors


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.1 * i for i in range(HEAD_DIM // 2)],
    "long_factor": [3.3 * (1 + i) for i in range(HEAD_DIM // 2)],
}


@pytest.mark.parametrize(
    ("scaling", "keys"),
    [
        (YARN, {"type": "yarn", "factor": 4.0, "original_context_length": 64,
                "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0}),
        (YARN | {"beta_fast": 24.0, "attention_factor": 1.25},
         {"yarn_beta_fast": 24.0, "yarn_attn_factor": 1.25}),
        (YARN | {"mscale": 0.707, "mscale_all_dim": 1.25},
         {"yarn_attn_factor": np.float32((0.0707 * np.log(4) + 1) / (0.125 * np.log(4) + 1))}),
        (LONGROPE | {"original_max_position_embeddings": 64},
         {"type": "longrope", "original_context_length": 64,
          "attn_factor": np.float32(np.sqrt(1 + np.log(2) / np.log(64)))}),
        (LONGROPE | {"original_max_position_embeddings": 32, "attention_factor": 1.75},
         {"original_context_length": 32, "attn_factor": 1.75}),
    ],
)  # fmt: skip
def test_every_rope_gguf_can_state_is_the_same_in_both(
    tmp_path: Path, scaling: dict[str, Any], keys: dict[str, Any]
) -> None:
    config = hf_config(rope_scaling=scaling)
    folder = write_hf(tmp_path / "in", hf_arrays(), config, byte_tokenizer())
    convert_to_gguf(folder, tmp_path / "m.gguf", None)
    middle = open_checkpoint(tmp_path / "m.gguf")
    for key, value in keys.items():
        stored = middle.metadata[f"llama.rope.scaling.{key}"]
        assert stored == value or stored == pytest.approx(value, rel=1e-7)
    if scaling["rope_type"] == "longrope":
        for name in ("short", "long"):
            stored = middle.tensors[f"rope_factors_{name}.weight"].to_f32()
            assert np.array_equal(stored, np.array(scaling[f"{name}_factor"], np.float32))
    write_hf_folder(middle, tmp_path / "out")
    back = open_checkpoint(tmp_path / "out")
    ropes = [RopeConfig.read(ConfigReader(item.config)) for item in (middle, back)]
    # Of mscale_all_dim the factor of attention is all that this family reads.
    expected = replace(RopeConfig.read(ConfigReader(config)), mscale_all_dim=0.0)
    assert ropes == [expected] * 2
    assert not any("rope_factors" in name for name in back.tensors)


def test_factors_no_config_gives_are_refused(tmp_path: Path) -> None:
    odd = LLAMA3 | {"high_freq_factor": 2.5}
    config = hf_config(rope_scaling=odd)
    folder = write_hf(tmp_path / "in", hf_arrays(), config, byte_tokenizer())
    convert_to_gguf(folder, tmp_path / "m.gguf", None)
    with pytest.raises(UnsupportedModelError, match=r"no rope_scaling of config.json gives"):
        write_hf_folder(open_checkpoint(tmp_path / "m.gguf"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": ..., "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
        {"rope_theta": 1e6, "rope_scaling": {"type": "default"}},
        {"rope_theta": 1e6, "rope_scaling": None},
        {"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 1.0}},
        {"rope_theta": None, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
    ],
)
def test_every_way_of_stating_plain_rope(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = write_hf(tmp_path, hf_arrays(), hf_config(**changes), byte_tokenizer())
    convert_to_gguf(folder, tmp_path / "m.gguf", None)
    config = open_checkpoint(tmp_path / "m.gguf").config
    assert config["rope_theta"] == 1e6 and "rope_scaling" not in config


def test_linear_scaling_under_both_spellings(tmp_path: Path) -> None:
    for key in ("type", "rope_type"):
        config = hf_config(rope_scaling={key: "linear", "factor": 4.0})
        folder = write_hf(tmp_path, hf_arrays(), config, byte_tokenizer())
        convert_to_gguf(folder, tmp_path / "m.gguf", None)
        scaling = open_checkpoint(tmp_path / "m.gguf").config["rope_scaling"]
        assert scaling == {"rope_type": "linear", "factor": 4.0}
