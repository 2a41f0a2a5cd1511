"""Families with experts: configs as published, what silence means, and what stops a load."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import DecoderConfig, load_model, read_config
from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor
from tests.tiny_families import tiny_family, tiny_family_names

WITH_EXPERTS = [
    name
    for name in tiny_family_names()
    if any("expert" in key for key in tiny_family(name).config())
]


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


# Keys of config.json as published, by the model they are of.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen3-30B-A3B": {
        "model_type": "qwen3_moe", "attention_bias": False, "decoder_sparse_step": 1,
        "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
        "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
        "moe_intermediate_size": 768, "norm_topk_prob": True, "num_attention_heads": 32,
        "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
        "sliding_window": None, "tie_word_embeddings": False, "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "Qwen3-Coder-480B-A35B": {
        "model_type": "qwen3_moe", "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 6144,
        "intermediate_size": 8192, "max_position_embeddings": 262144, "max_window_layers": 62,
        "mlp_only_layers": [], "moe_intermediate_size": 2560, "norm_topk_prob": True,
        "num_attention_heads": 96, "num_experts": 160, "num_experts_per_tok": 8,
        "num_hidden_layers": 62, "num_key_value_heads": 8, "qkv_bias": False,
        "rms_norm_eps": 1e-06, "rope_theta": 10000000, "shared_expert_intermediate_size": 0,
        "sliding_window": None, "use_qk_norm": True, "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "Mixtral-8x7B-v0.1": {
        "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 8, "output_router_logits": False, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": None,
        "tie_word_embeddings": False, "vocab_size": 32000,
    },
    "GLM-4.5-Air": {
        "model_type": "glm4_moe", "attention_bias": True, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 4096, "partial_rotary_factor": 0.5, "intermediate_size": 10944,
        "max_position_embeddings": 131072, "first_k_dense_replace": 1, "n_group": 1,
        "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 1,
        "norm_topk_prob": True, "num_attention_heads": 96, "num_experts_per_tok": 8,
        "num_hidden_layers": 46, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
        "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 1000000, "topk_group": 1,
        "routed_scaling_factor": 1.0, "tie_word_embeddings": False, "use_qk_norm": False,
        "vocab_size": 151552,
    },
    "Qwen1.5-MoE-A2.7B": {
        "model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_size": 2048,
        "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
        "moe_intermediate_size": 1408, "norm_topk_prob": False, "num_attention_heads": 16,
        "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24,
        "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
        "use_sliding_window": False, "vocab_size": 151936,
    },
    "OLMoE-1B-7B-0924": {
        "model_type": "olmoe", "attention_bias": False, "clip_qkv": None, "hidden_size": 2048,
        "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": False,
        "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
        "num_hidden_layers": 16, "num_key_value_heads": 16, "rms_norm_eps": 1e-05,
        "rope_scaling": None, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01,
        "vocab_size": 50304,
    },
    "granite-3.1-3b-a800m": {
        "model_type": "granitemoe", "attention_bias": False, "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0, "hidden_act": "silu", "hidden_size": 1536,
        "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 131072,
        "num_attention_heads": 24, "num_experts_per_tok": 8, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "num_local_experts": 40, "residual_multiplier": 0.22,
        "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000000.0,
        "router_aux_loss_coef": 0.0, "tie_word_embeddings": True, "vocab_size": 49155,
    },
    "Phi-3.5-MoE-instruct": {
        "model_type": "phimoe", "attention_bias": True, "hidden_act": "silu",
        "hidden_size": 4096, "input_jitter_noise": 0.01, "intermediate_size": 6400,
        "lm_head_bias": True, "max_position_embeddings": 131072, "num_attention_heads": 32,
        "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 16, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "type": "longrope", "long_factor": [2.0] * 64, "short_factor": [1.0] * 64,
            "long_mscale": 1.243163121016122, "short_mscale": 1.243163121016122,
            "original_max_position_embeddings": 4096,
        },
        "rope_theta": 10000.0, "router_aux_loss_coef": 0.0, "router_jitter_noise": 0.01,
        "sliding_window": 131072, "tie_word_embeddings": False, "vocab_size": 32064,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "routing", "width", "shared", "drafts"),
    [
        ("Qwen3-30B-A3B", Routing(128, 8, "softmax", True), 768, 0, 0),
        ("Qwen3-Coder-480B-A35B", Routing(160, 8, "softmax", True), 2560, 0, 0),
        ("Mixtral-8x7B-v0.1", Routing(8, 2, "softmax", True), 14336, 0, 0),
        ("GLM-4.5-Air", Routing(128, 8, "sigmoid", True, 1e-20, group_score="top2"), 1408, 1408, 1),
        ("Qwen1.5-MoE-A2.7B", Routing(60, 4, "softmax", False), 1408, 5632, 0),
        ("OLMoE-1B-7B-0924", Routing(64, 8, "softmax", False), 1024, 0, 0),
        ("granite-3.1-3b-a800m", Routing(40, 8, "softmax_of_chosen", False), 512, 0, 0),
        ("Phi-3.5-MoE-instruct", Routing(16, 2, "sparsemixer", False, jitter=0.01), 6400, 0, 0),
    ],
)
def test_configs_as_published_are_read(
    name: str, routing: Routing, width: int, shared: int, drafts: int
) -> None:
    config = read(PUBLISHED[name])
    assert config.experts is not None
    found = replace(config.experts.routing, jitter=round(config.experts.routing.jitter, 6))
    assert found == routing
    assert (config.experts.intermediate_size, config.experts.shared_size) == (width, shared)
    assert config.draft_layers == drafts
    layers = PUBLISHED[name]["num_hidden_layers"]
    dense = PUBLISHED[name].get("first_k_dense_replace", 0)
    assert config.experts.layers == (False,) * dense + (True,) * (layers - dense)
    assert not any(config.windows)


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("glm4_moe", {"n_group": 3}, "n_group = 3"),
        ("glm4_moe", {"n_group": 4}, "n_group = 4"),
        ("glm4_moe", {"n_group": 2, "topk_group": 3}, "topk_group = 3"),
        ("glm4_moe", {"n_group": 2, "num_experts_per_tok": 3}, "topk_group = 1"),
        ("glm4_moe", {"num_experts_per_tok": 5}, "num_experts_per_tok = 5"),
        ("glm4_moe", {"first_k_dense_replace": 4}, "first_k_dense_replace = 4"),
        ("glm4_moe", {"n_routed_experts": 1 << 30}, "n_routed_experts = 1073741824"),
        ("glm4_moe", {"num_nextn_predict_layers": 1 << 30}, "num_nextn_predict_layers"),
        ("glm4_moe", {"routed_scaling_factor": 0.0}, "routed_scaling_factor is 0.0"),
        ("glm4_moe", {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ("glm4_moe", {"topk_method": "greedy"}, "topk_method = 'greedy'"),
        ("qwen3_moe", {"use_sliding_window": True}, "use_sliding_window = True"),
        ("qwen3_moe", {"shared_expert_intermediate_size": 64}, "shared_expert_intermediate_size"),
        ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers = 3"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        ("qwen2_moe", {"num_experts": 0}, "num_experts is 0"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv = 8.0"),
        ("mixtral", {"num_local_experts": 5000}, "num_local_experts = 5000"),
        ("mixtral", {"num_local_experts": "8"}, "num_local_experts is '8'"),
        ("granitemoe", {"shared_intermediate_size": 8}, "shared_intermediate_size = 8"),
        ("glm4_moe", {"num_hidden_layers": (1 << 31) - 1}, "num_hidden_layers = 2147483647"),
        ("gpt2", {"n_layer": (1 << 31) - 1}, "n_layer = 2147483647"),
        ("phimoe", {"num_experts_per_tok": 7}, "num_experts_per_tok = 7"),
        ("phimoe", {"router_jitter_noise": -1.0}, "router_jitter_noise is -1.0"),
    ],
)
def test_what_is_not_implemented_stops_the_load(
    family: str, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        read({**tiny_config(family), **change})


def test_a_long_list_of_dense_layers_is_read_at_once() -> None:
    """A hostile config lists far more than there are layers."""
    dense = [*range(5), *range(10_000, 110_000)]
    config = {**tiny_config("qwen3_moe"), "num_hidden_layers": 4096, "mlp_only_layers": dense}
    config["layer_types"] = ["full_attention"] * 4096
    experts = read(config).experts
    assert experts is not None and experts.layers == (False,) * 5 + (True,) * 4091


def test_a_longrope_of_two_factors_is_refused() -> None:
    config = tiny_config("phimoe", **tiny_family("phimoe").CASES["phimoe-longrope"])
    scaling = {**config["rope_scaling"], "long_mscale": 1.5}
    with pytest.raises(UnsupportedModelError, match=r"rope_scaling\.long_mscale = 1\.5"):
        read({**config, "rope_scaling": scaling})


@pytest.mark.parametrize("family", WITH_EXPERTS)
def test_an_expert_that_is_missing_or_too_many_stops_the_load(family: str, reference: Ops) -> None:
    checkpoint = tiny_checkpoint(family)
    names = [name for name in checkpoint.tensors if ".experts.1." in name]
    lacking = {name: t for name, t in checkpoint.tensors.items() if name != names[-1]}
    with pytest.raises(CheckpointError, match=r"experts\.1\..* is missing"):
        load_model(replace(checkpoint, tensors=lacking), reference)
    more = names[-1].replace(".experts.1.", ".experts.99.")
    extra = {more: replace(checkpoint.tensors[names[-1]], name=more)}
    with pytest.raises(UnsupportedModelError, match=r"experts\.99\."):
        load_model(replace(checkpoint, tensors={**checkpoint.tensors, **extra}), reference)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("family", ["deepseek_v3", "ernie4_5_moe"])
def test_a_bias_of_the_choice_that_no_request_could_use_stops_the_load(
    family: str, value: float, reference: Ops
) -> None:
    tensors = dict(tiny_checkpoint(family).tensors)
    name = next(name for name in tensors if "e_score_correction_bias" in name)
    values = tensors[name].to_f32().copy()
    values[..., 2] = value
    tensors[name] = to_tensor(name, values, "F32")
    words = rf"tensor {re.escape(name)} holds {value} at 2; its values have to be finite\."
    with pytest.raises(CheckpointError, match=words):
        load_model(replace(tiny_checkpoint(family), tensors=tensors), reference)


def test_experts_of_two_kinds_are_refused(reference: Ops) -> None:
    checkpoint = tiny_checkpoint("mixtral")
    name = "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    other = to_tensor(name, checkpoint.tensors[name].to_f32(), "BF16")
    with pytest.raises(UnsupportedModelError, match=r"experts\.2\.w3\.weight BF16"):
        load_model(replace(checkpoint, tensors={**checkpoint.tensors, name: other}), reference)


def test_down_may_be_of_another_kind_than_gate_and_up(ops: Ops) -> None:
    """As in GGUF's mixtures."""
    from tests.models.cases import Session, prompt

    checkpoint = tiny_checkpoint("qwen3_moe", "Q8_0")
    finer = {
        name: to_tensor(name, tensor.to_f32(), "F32")
        for name, tensor in checkpoint.tensors.items()
        if name.endswith("down_proj.weight")
    }
    mixed = replace(checkpoint, tensors={**checkpoint.tensors, **finer})
    logits = [
        Session(load_model(item, ops), ops).feed(prompt(0)[:20]) for item in (checkpoint, mixed)
    ]
    # Some tokens go to another expert, whose scores are within the rounding of each other.
    difference = np.abs(logits[0] - logits[1]).max(axis=1)
    assert 0 < np.median(difference) < 0.2 * logits[0].std()
