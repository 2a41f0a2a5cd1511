"""Hunyuan with experts: numbers for each layer or for all, a base that alpha has grown."""

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
from tests.tiny_families.hunyuan_v1_dense import ALPHA

CASES: dict[str, dict[str, Any]] = {
    "hunyuan-moe": {"rope_scaling": ALPHA},
    "hunyuan-moe-lists": {
        "moe_topk": [3, 3],
        "moe_intermediate_size": [32, 32],
        "num_shared_expert": [1, 1],
        "tie_word_embeddings": True,
        "attention_bias": True,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hunyuan-moe", {"rope_scaling": None}),
    ("hunyuan-moe-lists", {"moe_topk": 2}),
)
BROKEN_TENSORS = (
    ("hunyuan-moe", "key_layernorm.weight"),
    ("hunyuan-moe", "shared_mlp.down_proj.weight"),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "hunyuan_v1_moe",
            "HunYuanMoEV1ForCausalLM",
            head_dim=16,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            intermediate_size=32,
            num_experts=6,
            moe_topk=2,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    head, hidden, width = (config["head_dim"],), config["hidden_size"], config["intermediate_size"]
    norms = {"self_attn.query_layernorm": head, "self_attn.key_layernorm": head}
    experts = expert_shapes("mlp", hidden, width, config["num_experts"])
    experts["mlp.gate.wg.weight"] = experts.pop("mlp.gate.weight")
    experts |= mlp_shapes("mlp.shared_mlp", hidden, width)
    layers = range(config["num_hidden_layers"])
    return with_experts(decoder_shapes(config, PRE_NORMS | norms), layers, experts)
