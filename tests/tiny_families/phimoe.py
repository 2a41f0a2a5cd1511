"""Tiny Phi-3.5-MoEs: LayerNorms, biases, a sparse mixer; longrope with its own factor."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import (
    PRE_NORMS,
    Shapes,
    base_config,
    decoder_shapes,
    expert_shapes,
    with_experts,
)
from tests.tiny_families.mixtral import MIXTRAL_NAMES

_LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0 + 0.1 * pair for pair in range(8)],
    "long_factor": [4.0] * 8,
    "short_mscale": 1.25,
    "long_mscale": 1.25,
    "original_max_position_embeddings": 512,
}
CASES: dict[str, dict[str, Any]] = {
    "phimoe": {},
    "phimoe-longrope": {
        "rope_scaling": _LONGROPE,
        "attention_bias": False,
        "lm_head_bias": False,
        "router_jitter_noise": 0.3,
    },
}
NOT_IN_GGUF = ("phimoe-longrope",)

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("phimoe", {"router_jitter_noise": 1.0}),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "phimoe",
            "PhimoeForCausalLM",
            intermediate_size=32,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            attention_bias=True,
            lm_head_bias=True,
            sliding_window=None,
            num_local_experts=6,
            num_experts_per_tok=2,
            router_jitter_noise=0.01,
            input_jitter_noise=0.01,
            output_router_logits=False,
            router_aux_loss_coef=0.0,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    count, layers = config["num_local_experts"], range(config["num_hidden_layers"])
    experts = expert_shapes("block_sparse_moe", hidden, width, count, MIXTRAL_NAMES)
    shapes = with_experts(decoder_shapes(config, PRE_NORMS), layers, experts)
    norms = [name for name in shapes if name.endswith("norm.weight")]
    shapes |= {name.replace("weight", "bias"): (hidden,) for name in norms}
    if config["lm_head_bias"]:
        shapes["lm_head.bias"] = (config["vocab_size"],)
    return shapes
