"""Tiny Mixtrals: with and without a window."""

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

MIXTRAL_NAMES = ("w1", "w3", "w2")
CASES: dict[str, dict[str, Any]] = {
    "mixtral": {},
    "mixtral-three-of-five": {"num_local_experts": 5, "num_experts_per_tok": 3, "head_dim": 32},
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("mixtral", {"num_experts_per_tok": 1}),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = (
        base_config(
            "mixtral",
            "MixtralForCausalLM",
            intermediate_size=64,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_theta=1e6,
            sliding_window=None,
            num_local_experts=4,
            num_experts_per_tok=2,
            output_router_logits=False,
            router_aux_loss_coef=0.02,
        )
        | overrides
    )
    del keys["attention_bias"]
    return keys


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    dense = decoder_shapes({**config, "attention_bias": False}, PRE_NORMS)
    width, count = config["intermediate_size"], config["num_local_experts"]
    hidden = config["hidden_size"]
    experts = expert_shapes("block_sparse_moe", hidden, width, count, MIXTRAL_NAMES)
    return with_experts(dense, range(config["num_hidden_layers"]), experts)
