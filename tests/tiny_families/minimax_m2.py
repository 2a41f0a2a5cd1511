"""Tiny MiniMax-M2s: half of each head rotated, and other parts of it."""

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

CASES: dict[str, dict[str, Any]] = {
    "minimax-m2": {},
    "minimax-m2-one-kv-head": {
        "rotary_dim": 32,
        "num_key_value_heads": 1,
        "num_local_experts": 5,
        "num_experts_per_tok": 3,
        "tie_word_embeddings": True,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("minimax-m2", {"rotary_dim": 32}),)
BROKEN_TENSORS = (("minimax-m2", "e_score_correction_bias"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = (
        base_config(
            "minimax_m2",
            "MiniMaxM2ForCausalLM",
            intermediate_size=32,
            head_dim=32,
            rotary_dim=16,
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_theta=5e6,
            use_qk_norm=True,
            qk_norm_type="per_layer",
            use_routing_bias=True,
            scoring_func="sigmoid",
            shared_intermediate_size=0,
            num_local_experts=8,
            num_experts_per_tok=2,
        )
        | overrides
    )
    del keys["attention_bias"]
    return keys


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    norms = PRE_NORMS | {
        "self_attn.q_norm": (config["num_attention_heads"] * head_dim,),
        "self_attn.k_norm": (config["num_key_value_heads"] * head_dim,),
    }
    dense = decoder_shapes({**config, "attention_bias": False}, norms)
    width, count = config["intermediate_size"], config["num_local_experts"]
    experts = expert_shapes("block_sparse_moe", hidden, width, count, MIXTRAL_NAMES)
    experts["block_sparse_moe.e_score_correction_bias"] = (count,)
    return with_experts(dense, range(config["num_hidden_layers"]), experts)
