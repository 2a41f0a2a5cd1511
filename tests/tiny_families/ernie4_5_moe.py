"""ERNIE 4.5 with experts: dense first layers, shared experts, a bias that only chooses."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import (
    PRE_NORMS,
    Shapes,
    base_config,
    decoder_shapes,
    expert_shapes,
    mlp_shapes,
    with_experts,
)

CASES: dict[str, dict[str, Any]] = {
    "ernie-moe": {},
    "ernie-moe-unshared": {
        "moe_num_shared_experts": 0,
        "moe_layer_start_index": 0,
        "tie_word_embeddings": False,
    },
    "ernie-moe-interval": {
        "num_hidden_layers": 4,
        "moe_layer_interval": 2,
        "moe_layer_end_index": 2,
        "tie_word_embeddings": False,
        "moe_num_shared_experts": 1,
        "use_bias": True,
    },
}
NOT_IN_GGUF = ("ernie-moe-interval",)

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ernie-moe", {"moe_k": 1}),
    ("ernie-moe", {"rope_theta": 10000.0}),
)
BROKEN_TENSORS = (
    ("ernie-moe", "e_score_correction_bias"),
    ("ernie-moe-interval", "shared_experts.down_proj.bias"),
    ("ernie-moe-interval", "lm_head.bias"),
)
SPREAD = {"e_score_correction_bias": 0.1}
"""Of the order of the scores, so that both decide."""


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = (
        base_config(
            "ernie4_5_moe",
            "Ernie4_5_MoeForCausalLM",
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            tie_word_embeddings=True,
            use_bias=False,
            moe_intermediate_size=32,
            moe_num_experts=6,
            moe_k=2,
            moe_num_shared_experts=2,
            moe_layer_start_index=1,
            moe_layer_end_index=-1,
            moe_layer_interval=1,
            moe_norm_min=1e-12,
        )
        | overrides
    )
    del keys["attention_bias"]
    return keys


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    use_bias, hidden, count = config["use_bias"], config["hidden_size"], config["moe_num_experts"]
    dense = decoder_shapes({**config, "attention_bias": use_bias, "mlp_bias": use_bias}, PRE_NORMS)
    if use_bias:
        dense["lm_head.bias"] = (config["vocab_size"],)
    width, shared = config["moe_intermediate_size"], config["moe_num_shared_experts"]
    experts = expert_shapes("mlp", hidden, width, count)
    experts["mlp.moe_statics.e_score_correction_bias"] = (1, count)
    if shared:
        parts = mlp_shapes("mlp.shared_experts", hidden, width * shared)
        experts |= parts
        if use_bias:
            biases = {name.replace(".weight", ".bias"): shape[:1] for name, shape in parts.items()}
            experts |= biases
    start, end = config["moe_layer_start_index"], config["moe_layer_end_index"]
    last = config["num_hidden_layers"] - 1 if end == -1 else end
    step = config["moe_layer_interval"]
    layers = [index for index in range(start, last + 1) if (index + 1) % step == 0]
    return with_experts(dense, layers, experts)
