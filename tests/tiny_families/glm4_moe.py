"""GLM-4.5: layer 0 dense, then experts of which some are used, and a shared one."""

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
    "glm4-moe": {},
    "glm4-moe-tied": {"tie_word_embeddings": True, "partial_rotary_factor": 1.0},
    "glm4-moe-no-head-norms": {"use_qk_norm": False, "attention_bias": True},
    "glm4-moe-groups": {
        "n_routed_experts": 12,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "norm_topk_prob": False,
        "n_shared_experts": 2,
        "first_k_dense_replace": 0,
    },
}
NOT_IN_GGUF = ("glm4-moe-groups",)

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("glm4-moe", {"norm_topk_prob": False}),
    ("glm4-moe", {"routed_scaling_factor": 1.0}),
    ("glm4-moe-groups", {"n_group": 1, "topk_group": 1}),
)
BROKEN_TENSORS = (("glm4-moe", "e_score_correction_bias"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "glm4_moe",
            "Glm4MoeForCausalLM",
            num_hidden_layers=3,
            head_dim=16,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            partial_rotary_factor=0.5,
            use_qk_norm=True,
            first_k_dense_replace=1,
            moe_intermediate_size=32,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_shared_experts=1,
            routed_scaling_factor=1.5,
            norm_topk_prob=True,
            n_group=1,
            topk_group=1,
            num_nextn_predict_layers=0,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    head = (config["head_dim"],)
    head_norms = {"self_attn.q_norm": head, "self_attn.k_norm": head}
    norms = PRE_NORMS | (head_norms if config["use_qk_norm"] else {})
    dense = decoder_shapes(config, norms, output_bias=False)
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    count = config["n_routed_experts"]
    experts = expert_shapes("mlp", hidden, width, count)
    experts["mlp.gate.e_score_correction_bias"] = (count,)
    shared = width * config["n_shared_experts"]
    experts |= mlp_shapes("mlp.shared_experts", hidden, shared)
    layers = range(config["first_k_dense_replace"], config["num_hidden_layers"])
    return with_experts(dense, layers, experts)
