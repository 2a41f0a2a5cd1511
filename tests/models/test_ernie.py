"""ERNIE 4.5: what silence means, which layers have experts, what is set aside, what GGUF states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.conversion.convert import write_gguf
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.open import open_checkpoint
from tests.models.cases import Session, prompt
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor

MOE = "ernie4_5_moe"


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def sparse_layers(**changes: Any) -> list[int]:
    experts = read({**tiny_config(MOE, num_hidden_layers=6), **changes}).experts
    assert experts is not None
    return [index for index, sparse in enumerate(experts.layers) if sparse]


def test_what_a_silent_config_with_experts_means() -> None:
    """As transformers' class has it."""
    config = read(
        {"model_type": MOE, "hidden_size": 2560, "intermediate_size": 12288,
         "num_attention_heads": 20, "num_hidden_layers": 28}
    )  # fmt: skip
    assert (config.attention.num_kv_heads, config.attention.head_dim) == (4, 128)
    assert config.rope is not None and config.rope.theta == 5e5
    assert config.experts is not None
    assert config.experts.routing == Routing(64, 6, "softmax", True)
    assert (config.experts.intermediate_size, config.experts.shared_size) == (1536, 3072)
    assert config.experts.layers == (False,) + (True,) * 27
    assert (config.attention_bias, config.mlp_bias, config.head_bias) == (False, False, False)


def test_layers_with_experts() -> None:
    assert sparse_layers() == [1, 2, 3, 4, 5]
    assert sparse_layers(moe_layer_start_index=0, moe_layer_end_index=3) == [0, 1, 2, 3]
    assert sparse_layers(moe_layer_interval=3) == [2, 5]
    assert sparse_layers(moe_layer_start_index=6) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"moe_k": 7}, "moe_k = 7"),
        ({"moe_num_experts": 1 << 30}, "moe_num_experts = 1073741824"),
        ({"moe_num_shared_experts": -1}, "moe_num_shared_experts = -1"),
        ({"moe_layer_start_index": 3}, "moe_layer_start_index = 3"),
        ({"moe_layer_end_index": 2}, "moe_layer_end_index = 2"),
        ({"moe_layer_interval": 0}, "moe_layer_interval is 0"),
        ({"moe_norm_min": 1e-6}, "moe_norm_min"),
        ({"num_nextn_predict_layers": 17}, "num_nextn_predict_layers = 17"),
        ({"moe_gate": "sigmoid"}, "moe_gate = 'sigmoid'"),
        ({"use_bias": "yes"}, "use_bias is 'yes'"),
    ],
)
def test_what_is_not_implemented_stops_the_load(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(MOE), **change})


def with_drafts(prefix: str = "model.mtp_block.0") -> Checkpoint:
    """A checkpoint with a layer that predicts a further token."""
    checkpoint = tiny_checkpoint(MOE, num_nextn_predict_layers=1)
    first = "model.layers.0."
    more = {
        f"{prefix}.{name.removeprefix(first)}": tensor.to_f32()
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(first)
    }
    more["model.mtp_linear_proj.0.weight"] = np.ones((64, 128), np.float32)
    for part in ("emb", "hidden"):
        more[f"model.mtp_{part}_norm.0.weight"] = np.ones(64, np.float32)
    drafts = {name: to_tensor(name, values, "F32") for name, values in more.items()}
    return replace(checkpoint, tensors={**checkpoint.tensors, **drafts})


def test_layers_that_predict_are_set_aside(reference: Ops, tmp_path: Path) -> None:
    alone = load_model(tiny_checkpoint(MOE), reference)
    whole = load_model(with_drafts(), reference)
    ids = prompt(0)[:8]
    first, second = (Session(model, reference).feed(ids) for model in (alone, whole))
    assert np.array_equal(first, second)
    with pytest.raises(UnsupportedModelError, match=r"mtp_block\.1\."):
        load_model(with_drafts("model.mtp_block.1"), reference)
    with pytest.raises(UnsupportedModelError, match=r"mtp_\S+ has no name in GGUF"):
        write_gguf(with_drafts(), tmp_path / "m.gguf")


def test_a_gguf_file_states_experts_in_llama_cpps_words(tmp_path: Path) -> None:
    entries = metadata_of_config(tiny_config(MOE), ARCHITECTURES[MOE]).entries
    assert {key.removeprefix("ernie4_5-moe."): entries[key] for key in entries if "exp" in key} == {
        "expert_count": 6,
        "expert_used_count": 2,
        "expert_feed_forward_length": 32,
        "expert_shared_count": 2,
        "expert_shared_feed_forward_length": 64,
    }
    assert entries["ernie4_5-moe.leading_dense_block_count"] == 1
    assert entries["ernie4_5-moe.interleave_moe_layer_step"] == 1
    path = tmp_path / "m.gguf"
    write_gguf(tiny_checkpoint(MOE), path)
    name = "model.layers.1.mlp.moe_statics.e_score_correction_bias"
    assert open_checkpoint(path).tensors[name].shape == (1, 6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"moe_layer_interval": 2}, "moe_layer_interval = 2"),
        ({"moe_layer_end_index": 0}, "moe_layer_end_index = 0"),
        ({"use_bias": True}, "use_bias"),
    ],
)
def test_what_gguf_cannot_state_is_not_written(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        metadata_of_config(tiny_config(MOE, **change), ARCHITECTURES[MOE])


def test_a_bias_of_another_shape_stops_the_load(reference: Ops) -> None:
    checkpoint = tiny_checkpoint(MOE)
    name = "model.layers.1.mlp.moe_statics.e_score_correction_bias"
    turned = replace(checkpoint.tensors[name], shape=(6,))
    with pytest.raises(CheckpointError, match=r"shape \[6\], the config asks for \[1, 6\]"):
        load_model(replace(checkpoint, tensors={**checkpoint.tensors, name: turned}), reference)
