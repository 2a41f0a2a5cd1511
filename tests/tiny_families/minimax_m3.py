"""Tiny MiniMax-M3s for texts of which every block is chosen, with the indexer's tensors."""

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
from tests.tiny_families.mixtral import MIXTRAL_NAMES

FULL, SPARSE = "full_attention", "minimax_m3_sparse"

CASES: dict[str, dict[str, Any]] = {
    "minimax-m3": {},
    "minimax-m3-published": {
        "layer_types": None,
        "mlp_layer_types": None,
        "moe_layer_freq": [0, 1, 1],
        "sparse_attention_config": {
            "sparse_attention_freq": [0, 1, 1],
            "sparse_block_size": 48,
            "sparse_disable_index_value": [0, 1, 1],
            "sparse_index_dim": 32,
            "sparse_init_block": 0,
            "sparse_local_block": 1,
            "sparse_num_index_heads": 2,
            "sparse_score_type": "max",
            "sparse_topk_blocks": 3,
            "use_sparse_attention": True,
        },
        "hidden_act": "swigluoai",
        "rotary_dim": 8,
        "partial_rotary_factor": 0.25,
        "num_local_experts": 5,
        "num_experts_per_tok": 3,
        "shared_intermediate_size": 64,
        "tie_word_embeddings": True,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("minimax-m3", {"partial_rotary_factor": 1.0}),
    ("minimax-m3", {"routed_scaling_factor": 1.0}),
    ("minimax-m3", {"num_experts_per_tok": 3}),
)
BROKEN_TENSORS = (
    ("minimax-m3", "e_score_correction_bias"),
    ("minimax-m3", "q_norm.weight"),
    ("minimax-m3", "shared_experts.up_proj.weight"),
)
SPREAD = {".w1.weight": 2.5, ".w3.weight": 2.5, "gate_proj.weight": 2.5, "up_proj.weight": 2.5}
"""Gates and what they meet reach the limit of 7."""

OUTER = {
    "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
    "model_type": "minimax_m3_vl",
    "image_token_index": 280,
    "video_token_index": 281,
    "projector_hidden_size": 16,
    "vision_config": {
        "model_type": "minimax_m3_vl_vision",
        "hidden_size": 16,
        "image_size": 4,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "patch_size": 2,
    },
}


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = (
        base_config(
            "minimax_m3",
            "MiniMaxM3ForCausalLM",
            num_hidden_layers=3,
            dense_intermediate_size=96,
            intermediate_size=32,
            shared_intermediate_size=32,
            head_dim=32,
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_theta=5e6,
            partial_rotary_factor=0.5,
            layer_types=[FULL, SPARSE, SPARSE],
            mlp_layer_types=["dense", "sparse", "sparse"],
            index_n_heads=2,
            index_head_dim=32,
            index_block_size=32,
            index_topk_blocks=5,
            index_local_blocks=1,
            num_local_experts=8,
            num_experts_per_tok=2,
            routed_scaling_factor=2.0,
            swiglu_alpha=1.702,
            swiglu_limit=7.0,
        )
        | overrides
    )
    del keys["attention_bias"]
    if keys.get("sparse_attention_config"):
        keys = {key: value for key, value in keys.items() if not key.startswith("index_")}
    return keys


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    norms = PRE_NORMS | {"self_attn.q_norm": (head_dim,), "self_attn.k_norm": (head_dim,)}
    like = {"attention_bias": False, "intermediate_size": config["dense_intermediate_size"]}
    dense = decoder_shapes({**config, **like}, norms)
    width, count = config["intermediate_size"], config["num_local_experts"]
    experts = expert_shapes("block_sparse_moe", hidden, width, count, MIXTRAL_NAMES)
    experts["block_sparse_moe.e_score_correction_bias"] = (count,)
    shared = config["shared_intermediate_size"]
    experts |= mlp_shapes("block_sparse_moe.shared_experts", hidden, shared)
    stated = config.get("sparse_attention_config") or {}
    heads = stated.get("sparse_num_index_heads") or config["index_n_heads"]
    index_dim = stated.get("sparse_index_dim") or config["index_head_dim"]
    experts |= {
        "self_attn.index_q_proj.weight": (heads * index_dim, hidden),
        "self_attn.index_k_proj.weight": (index_dim, hidden),
        "self_attn.index_q_norm.weight": (index_dim,),
        "self_attn.index_k_norm.weight": (index_dim,),
    }
    return with_experts(dense, range(1, config["num_hidden_layers"]), experts)
