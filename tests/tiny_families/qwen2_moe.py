"""Tiny Qwen2s with experts and a shared one that has a gate, in every layer and in some."""

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
from tests.tiny_families.qwen3_moe import sparse_layers

CASES: dict[str, dict[str, Any]] = {
    "qwen2-moe": {},
    "qwen2-moe-no-bias": {"qkv_bias": False, "tie_word_embeddings": True},
    "qwen2-moe-sparse": {
        "num_hidden_layers": 3,
        "mlp_only_layers": [0],
        "norm_topk_prob": True,
        "use_sliding_window": True,
        "sliding_window": 24,
        "max_window_layers": 2,
    },
}
NOT_IN_GGUF = ("qwen2-moe-sparse",)

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("qwen2-moe", {"norm_topk_prob": True}),)
BROKEN_TENSORS = (("qwen2-moe", "shared_expert_gate.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = (
        base_config(
            "qwen2_moe",
            "Qwen2MoeForCausalLM",
            hidden_act="silu",
            rms_norm_eps=1e-6,
            use_sliding_window=False,
            sliding_window=None,
            max_window_layers=overrides.get("num_hidden_layers", 2),
            decoder_sparse_step=1,
            mlp_only_layers=[],
            moe_intermediate_size=32,
            shared_expert_intermediate_size=64,
            num_experts=6,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            qkv_bias=True,
            output_router_logits=False,
            router_aux_loss_coef=0.001,
        )
        | overrides
    )
    del keys["attention_bias"]
    return keys


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, count = config["hidden_size"], config["num_experts"]
    dense = decoder_shapes(
        {**config, "attention_bias": config["qkv_bias"]}, PRE_NORMS, output_bias=False
    )
    experts = expert_shapes("mlp", hidden, config["moe_intermediate_size"], count)
    shared = config["shared_expert_intermediate_size"]
    experts |= mlp_shapes("mlp.shared_expert", hidden, shared)
    experts["mlp.shared_expert_gate.weight"] = (1, hidden)
    return with_experts(dense, sparse_layers(config), experts)
