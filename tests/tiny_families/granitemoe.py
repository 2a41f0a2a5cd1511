"""Tiny Granites with experts, all of a layer in two tensors."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import (
    PRE_NORMS,
    Shapes,
    base_config,
    decoder_shapes,
    with_experts,
)

CASES: dict[str, dict[str, Any]] = {
    "granite-moe": {},
    "granite-moe-bias": {"attention_bias": True, "tie_word_embeddings": True},
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("granite-moe", {"num_experts_per_tok": 2}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "granitemoe",
            "GraniteMoeForCausalLM",
            intermediate_size=32,
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_scaling=None,
            attention_multiplier=0.2,
            embedding_multiplier=0.5,
            residual_multiplier=0.6,
            logits_scaling=0.5,
            num_local_experts=6,
            num_experts_per_tok=3,
            output_router_logits=False,
            router_aux_loss_coef=0.0,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    count = config["num_local_experts"]
    experts: Shapes = {
        "block_sparse_moe.input_linear.weight": (count, 2 * width, hidden),
        "block_sparse_moe.output_linear.weight": (count, hidden, width),
        "block_sparse_moe.router.layer.weight": (count, hidden),
    }
    layers = range(config["num_hidden_layers"])
    return with_experts(decoder_shapes(config, PRE_NORMS), layers, experts)
