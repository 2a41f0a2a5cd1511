"""Cohere, GLM and OLMo 2: what is easily lost in them, and what their configs may not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import load_model
from headrace.models.families.cohere import Cohere
from headrace.models.families.cohere2 import Cohere2
from headrace.models.families.glm import Glm
from headrace.models.families.glm4 import Glm4
from headrace.models.families.olmo2 import Olmo2
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint, Conventions
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.rope_rows import heads_to_interleaved
from headrace.weights.tensors.tensor import Tensor
from tests.models.cases import CASES, Session, prompt
from tests.tiny import tiny_checkpoint, to_tensor, write_tiny_gguf

COMMAND_R = {
    "architectures": ["CohereForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 5, "eos_token_id": 255001, "hidden_act": "silu", "hidden_size": 8192,
    "initializer_range": 0.02, "intermediate_size": 22528, "layer_norm_eps": 1e-05,
    "logit_scale": 0.0625, "max_position_embeddings": 8192, "model_max_length": 131072,
    "model_type": "cohere", "num_attention_heads": 64, "num_hidden_layers": 40,
    "num_key_value_heads": 64, "pad_token_id": 0, "pretraining_tp": 1, "rope_theta": 8000000.0,
    "torch_dtype": "float16", "transformers_version": "4.38.2", "use_cache": True,
    "vocab_size": 256000,
}  # fmt: skip
COMMAND_R7B = {
    "architectures": ["Cohere2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 5, "cache_implementation": "hybrid", "eos_token_id": 255001, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "layer_norm_eps": 1e-05, "layer_switch": 4, "logit_scale": 0.25,
    "max_position_embeddings": 8192, "model_type": "cohere2", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8,
    "order_of_interleaved_layers": "local_attn_first", "pad_token_id": 0,
    "position_embedding_type": "rope_gptj", "rope_scaling": None, "rope_theta": 50000,
    "rotary_pct": 1.0, "sliding_window": 4096, "sliding_window_pattern": 4,
    "torch_dtype": "bfloat16", "use_cache": True, "use_embedding_sharing": True,
    "use_gated_activation": True, "use_parallel_block": True, "use_parallel_embedding": True,
    "vocab_size": 256000,
}  # fmt: skip
GLM_4_9B_0414 = {
    "architectures": ["Glm4ForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
    "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 13696,
    "max_position_embeddings": 32768, "model_type": "glm4", "num_attention_heads": 32,
    "num_hidden_layers": 40, "num_key_value_heads": 2, "pad_token_id": 151329,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
    "vocab_size": 151552,
}  # fmt: skip
OLMO_2_7B = {
    "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000,
    "tie_word_embeddings": False, "torch_dtype": "float32", "use_cache": True,
    "vocab_size": 100352,
}  # fmt: skip
FAMILIES = {"cohere": Cohere, "cohere2": Cohere2, "glm": Glm, "glm4": Glm4, "olmo2": Olmo2}


def read(config: Mapping[str, Any]) -> Any:
    """The config as its family reads it, all keys accounted for."""
    reader = ConfigReader(config)
    found = FAMILIES[reader.required("model_type", str)].read_config(reader)
    reader.finish()
    return found


def test_the_config_of_command_r() -> None:
    config = read(COMMAND_R)
    assert (config.norm, config.norm_eps) == ("layer", pytest.approx(1e-5))
    assert config.max_positions == 131072
    assert (config.logit_scale, config.rope.theta) == (0.0625, 8e6)
    assert (config.windows, config.rotates, config.head_norms) == ((), (), None)
    assert read(COMMAND_R | {"use_qk_norm": True}).head_norms is True


def test_the_config_of_command_r7b() -> None:
    config = read(COMMAND_R7B)
    assert config.windows == (4096, 4096, 4096, 0) * 8
    assert config.rotates == (True, True, True, False) * 8
    assert (config.logit_scale, config.rope.theta) == (0.25, 50000.0)


def test_the_config_of_glm_4() -> None:
    config = read(GLM_4_9B_0414)
    assert (config.rotary_dim, config.attention.num_kv_heads) == (64, 2)
    assert (config.attention_bias, config.output_bias, config.mlp_bias) == (True, False, False)
    silent = {key: value for key, value in GLM_4_9B_0414.items() if "partial" not in key}
    assert read(silent).rotary_dim == 64
    newer = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    assert read(silent | {"rope_parameters": newer}).rotary_dim == 32


def test_the_config_of_olmo_2() -> None:
    config = read(OLMO_2_7B)
    assert (config.rope.theta, config.attention.head_dim) == (500000.0, 128)


@pytest.mark.parametrize(
    ("base", "change", "named"),
    [
        (COMMAND_R, {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        (COMMAND_R, {"head_dim": 64}, "head_dim = 64"),
        (COMMAND_R, {"logit_scale": 0.0}, "logit_scale"),
        (COMMAND_R, {"sliding_window": 4096}, "sliding_window = 4096"),
        (COMMAND_R7B, {"use_parallel_block": False}, "use_parallel_block = False"),
        (COMMAND_R7B, {"use_qk_norm": True}, "use_qk_norm = True"),
        (COMMAND_R7B, {"rotary_pct": 0.5}, "rotary_pct = 0.5"),
        (COMMAND_R7B, {"layer_switch": 2}, "layer_switch = 2"),
        (COMMAND_R7B, {"order_of_interleaved_layers": "global_first"}, "global_first"),
        (GLM_4_9B_0414, {"partial_rotary_factor": 1.5}, "partial_rotary_factor = 1.5"),
        (OLMO_2_7B, {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        # OLMo 3's windows, and OLMo 1's bound on Q, K and V.
        (OLMO_2_7B, {"sliding_window": 4096}, "sliding_window = 4096"),
        (OLMO_2_7B, {"clip_qkv": 8.0}, "clip_qkv = 8.0"),
    ],
)
def test_values_that_are_not_implemented_are_named(
    base: dict[str, Any], change: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        read(base | change)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cohere-head-norms", {"layer_norm_eps": 0.5}),
        ("cohere", {"rope_theta": 100.0}),
        ("cohere2", {"sliding_window": 512}),
        ("cohere2", {"layer_types": ["sliding_attention"] * 5}),
        ("glm", {"partial_rotary_factor": 1.0}),
        ("glm4", {"partial_rotary_factor": 0.25}),
    ],
)
def test_no_feature_is_lost_in_the_tolerance(
    name: str, change: dict[str, Any], reference: Ops
) -> None:
    """Without it the logits are a thousand tolerances away, so the cases do test it."""
    family, shape = CASES[name]
    one, other = (
        Session(load_model(tiny_checkpoint(family, **keys), reference), reference).feed(prompt(0))
        for keys in (shape, shape | change)
    )
    assert np.abs(one - other).max() > 0.01 * np.abs(one).max()


def in_half_order(checkpoint: Checkpoint) -> Checkpoint:
    """The same model with rows of Q and K, and what stands beside them, in "half" order."""
    config = checkpoint.config
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rotary = int(head_dim * config.get("partial_rotary_factor", 1.0))
    tensors: dict[str, Tensor] = {}
    for name, tensor in checkpoint.tensors.items():
        if any(f".self_attn.{kind}" in name for kind in ("q_", "k_")):
            heads = tensor.to_f32().size // head_dim
            heads = tensor.shape[0] // head_dim if tensor.shape[-1] != head_dim else heads
            rows = tensor.to_f32().reshape(heads, head_dim, -1)
            order = heads_to_interleaved(1, head_dim, rotary)
            moved = np.empty_like(rows)
            moved[:, order] = rows
            tensor = to_tensor(name, moved.reshape(tensor.shape), "F32")
        tensors[name] = tensor
    return replace(checkpoint, tensors=tensors, conventions=Conventions(rope_layout="half"))


@pytest.mark.parametrize("name", ["cohere", "cohere-head-norms", "cohere-bias", "glm", "glm4"])
def test_interleaved_rows_and_what_stands_beside_them(name: str, reference: Ops) -> None:
    family, shape = CASES[name]
    stored = tiny_checkpoint(family, **shape)
    assert stored.conventions.rope_layout == "interleaved"
    one, other, wrong = (
        Session(load_model(item, reference), reference).feed(prompt(0)[:20])
        for item in (
            stored,
            in_half_order(stored),
            replace(stored, conventions=Conventions(rope_layout="half")),
        )
    )
    assert np.array_equal(one, other)
    assert np.abs(one - wrong).max() > 0.01 * np.abs(one).max()


@pytest.mark.parametrize("has_norms", [False, True])
def test_head_norms_are_what_the_file_holds_where_nothing_is_said(
    has_norms: bool, tmp_path: Path, reference: Ops
) -> None:
    path = write_tiny_gguf(tmp_path, "cohere", use_qk_norm=has_norms)
    file = open_checkpoint(path)
    assert "use_qk_norm" not in file.config
    write_hf_folder(file, tmp_path / "out")
    folder = open_checkpoint(tmp_path / "out")
    assert folder.config["use_qk_norm"] is has_norms
    one, other = (
        Session(load_model(item, reference), reference).feed(prompt(0)[:20])
        for item in (file, folder)
    )
    assert np.array_equal(one, other)


def test_head_norms_that_are_stated_must_be_there(reference: Ops) -> None:
    without = tiny_checkpoint("cohere")
    stated = replace(without, config={**without.config, "use_qk_norm": True})
    with pytest.raises(CheckpointError, match=r"q_norm\.weight is missing"):
        load_model(stated, reference)
    having = tiny_checkpoint("cohere", use_qk_norm=True)
    denied = replace(having, config={**having.config, "use_qk_norm": False})
    with pytest.raises(UnsupportedModelError, match="q_norm"):
        load_model(denied, reference)


def test_a_folder_of_glm_without_biases_says_so(tmp_path: Path) -> None:
    """transformers' default is that there are biases."""
    file = open_checkpoint(write_tiny_gguf(tmp_path, "glm4", attention_bias=False))
    write_hf_folder(file, tmp_path / "out")
    config = open_checkpoint(tmp_path / "out").config
    assert (config["attention_bias"], config["partial_rotary_factor"]) == (False, 0.5)


def test_files_of_chatglm_have_q_k_and_v_as_one(tmp_path: Path, reference: Ops) -> None:
    plain = tiny_checkpoint("glm")
    apart = tuple(f"{letter}_proj.{kind}" for letter in "qkv" for kind in ("weight", "bias"))
    tensors = {name: item for name, item in plain.tensors.items() if not name.endswith(apart)}
    for layer in range(2):
        at = f"model.layers.{layer}.self_attn"
        for kind in ("weight", "bias"):
            parts = [plain.tensors[f"{at}.{letter}_proj.{kind}"].to_f32() for letter in "qkv"]
            name = f"{at}.qkv_proj.{kind}"
            tensors[name] = to_tensor(name, np.concatenate(parts), "F32")
    write_gguf(replace(plain, tensors=tensors), tmp_path / "chatglm.gguf")
    file = open_checkpoint(tmp_path / "chatglm.gguf")
    one, other = (
        Session(load_model(item, reference), reference).feed(prompt(0)[:20])
        for item in (plain, file)
    )
    assert np.array_equal(one, other)
    with pytest.raises(UnsupportedModelError, match=r"qkv_proj\.\w+' has no name"):
        write_hf_folder(file, tmp_path / "out")
